from django.db import migrations, models


class Migration(migrations.Migration):
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("email", models.EmailField(max_length=254)),
                ("receipt_sent_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("due", models.DateTimeField()),
                ("orders", models.IntegerField()),
                ("worker", models.IntegerField()),
            ],
        ),
    )
