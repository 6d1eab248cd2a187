"""The tasks of the shop. leasework finds them here, because the module is named ``tasks``."""

import os

from django.utils import timezone

from leasework import SyncContext
from leasework.integrations.django import app
from shop.models import Order, Report


@app.task
def send_receipt(order_id: int) -> None:
    Order.objects.filter(id=order_id).update(receipt_sent_at=timezone.now())


@app.every(seconds=float(os.environ.get("REPORT_EVERY_SECONDS", 60)), missed="all")
@app.task(queue="reports")
def report(ctx: SyncContext) -> None:
    Report.objects.create(due=ctx.scheduled_for, orders=Order.objects.count(), worker=os.getpid())
