"""What the shop serves."""

from django.urls import path

from store.orders import order

urlpatterns = [path("orders", order)]
