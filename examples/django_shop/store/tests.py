"""Tests of the shop, without a broker: ``manage.py test``, or pytest with pytest-django."""

import json
from http import HTTPStatus

from django.test import TestCase
from outbox_django.test import StashedMixin

from store.models import Order


class OrderTest(StashedMixin, TestCase):
    def test_an_order_is_announced(self) -> None:
        answer = self.client.post("/orders", {"customer": "ada", "goods": "tea"})
        assert answer.status_code == HTTPStatus.CREATED
        record = self.assertStashed(key="ada")
        assert json.loads(str(record.value)) == {"order": answer.json()["order"], "goods": "tea"}

    def test_an_order_that_fails_is_not(self) -> None:
        answer = self.client.post("/orders", {"customer": "bob", "goods": "gold"})
        assert answer.status_code == HTTPStatus.CONFLICT
        self.assertNotStashed()
        assert not Order.objects.exists()
