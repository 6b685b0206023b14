"""Takes orders: stores each, and stashes its event, in one transaction."""

import json

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST
from outbox_api import Record
from outbox_django import stash

from store.models import Order

GOODS = {"tea", "coffee", "cake"}


class SoldOutError(Exception):
    """The shop has none of it."""


@transaction.atomic
def place_order(customer: str, goods: str) -> Order:
    """Stores an order and stashes its event; an error takes back both."""
    order: Order = Order.objects.create(customer=customer, goods=goods)
    event = json.dumps({"order": order.pk, "goods": goods})
    # Events of one customer keep their order, because they have the same key.
    stash(Record(settings.ORDERS_TOPIC, customer, event, (("type", "order-placed"),)))
    if goods not in GOODS:
        raise SoldOutError
    return order


@require_POST
def order(request: HttpRequest) -> JsonResponse:
    """Answers ``POST /orders``."""
    try:
        placed = place_order(request.POST.get("customer", ""), request.POST.get("goods", ""))
    except SoldOutError:
        return JsonResponse({"error": "sold out"}, status=409)
    return JsonResponse({"order": placed.pk}, status=201)
