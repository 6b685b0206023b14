"""What the shop sells, and what it ships."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    customer = models.CharField(max_length=50)
    goods = models.CharField(max_length=50)

    def __str__(self) -> str:
        return f"{self.customer} has {self.goods}"


class Shipment(models.Model):
    """What the consumer makes of an order."""

    order = models.IntegerField()
    goods = models.CharField(max_length=50)

    def __str__(self) -> str:
        return f"order {self.order}: {self.goods}"
