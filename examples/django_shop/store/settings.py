"""The shop's settings: a local PostgreSQL and Kafka, unless the environment names others."""

from os import environ

SECRET_KEY = environ.get("SECRET_KEY", "for trials only")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "store.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["store", "outbox_django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": environ.get("PGDATABASE", "postgres"),
        "HOST": environ.get("PGHOST", "localhost"),
        "PORT": environ.get("PGPORT", ""),
        "USER": environ.get("PGUSER", "postgres"),
        "PASSWORD": environ.get("PGPASSWORD", ""),
    }
}
ORDERS_TOPIC = environ.get("ORDERS_TOPIC", "orders")
KAFKA = {"bootstrap.servers": environ.get("KAFKA", "localhost:9092")}
OUTBOX = {
    "CONFIG": {
        "harvest": {
            "engine": "inline",
            "elector": "lease",
            "baseKafkaConfig": KAFKA,
            "transform": [{"driver": "identity"}],  # for the consumer's inbox
        }
    }
}
