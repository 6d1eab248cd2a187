from django.db import models


class Order(models.Model):
    email = models.EmailField()
    receipt_sent_at = models.DateTimeField(null=True)


class Report(models.Model):
    """What the schedule writes at each due moment."""

    due = models.DateTimeField()
    orders = models.IntegerField()
    worker = models.IntegerField()
