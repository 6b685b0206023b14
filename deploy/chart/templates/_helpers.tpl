{{- define "outbox.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The name of all objects: the release's, with the chart's unless that is in it. */}}
{{- define "outbox.fullname" -}}
{{- $name := include "outbox.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "outbox.serviceAccountName" -}}
{{- $own := ternary (include "outbox.fullname" .) "default" .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default $own }}
{{- end }}

{{- define "outbox.selectorLabels" -}}
app.kubernetes.io/name: {{ include "outbox.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "outbox.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "outbox.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "outbox.metadata" -}}
name: {{ include "outbox.fullname" . }}
labels:
  {{- include "outbox.labels" . | nindent 2 }}
{{- end }}

{{- /* Refuses former names of values by the present ones. */}}
{{- define "outbox.renamed" -}}
{{- $now := dict "replicas" "replicaCount" "secret" "existingSecret" "env" "extraEnv" "labels" "podLabels" "annotations" "podAnnotations" "pod" (printf "%s, at the top" (keys (.Values.pod | default dict) | sortAlpha | join ", ")) }}
{{- $old := list }}
{{- range $name := keys $now | sortAlpha }}
{{- if hasKey $.Values $name }}{{ $old = append $old (printf "%s is now %s" $name (get $now $name)) }}{{ end }}
{{- end }}
{{- with $old }}{{ fail (printf "values were renamed: %s" (join "; " .)) }}{{ end }}
{{- end }}

{{- /* What outbox.yaml contains. */}}
{{- define "outbox.config" -}}
{{- $http := dict "listen" "0.0.0.0:8080" "viewerTokens" (list "${file:/run/secrets/outbox/viewer-token}") }}
{{- mergeOverwrite (dict "http" $http) (deepCopy .Values.config) | toYaml }}
{{- end }}

{{- /* The name of the Lease with the elector `kubernetes`, or nothing. */}}
{{- define "outbox.lease" -}}
{{- $harvest := .Values.config.harvest | default dict }}
{{- $elector := $harvest.elector | default "" }}
{{- if kindIs "map" $elector }}{{ $elector = $elector.driver | default "" }}{{ end }}
{{- if eq $elector "kubernetes" }}
{{- $name := $harvest.leaderGroupID | default "" }}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$" $name) }}
{{- fail "config.harvest.leaderGroupID must be a name that a Lease may have, such as billing, with the elector kubernetes" }}
{{- end }}
{{- $name }}
{{- end }}
{{- end }}
