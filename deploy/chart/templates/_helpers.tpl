{{- define "outbox.selector" -}}
app.kubernetes.io/name: outbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "outbox.metadata" -}}
name: {{ .Release.Name }}
labels:
  {{- include "outbox.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
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
