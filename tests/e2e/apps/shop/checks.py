"""Run by Django's own test runner, on a test database that it makes."""

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest import mock

import psycopg
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client, TestCase, TransactionTestCase, override_settings
from psycopg.conninfo import make_conninfo

from leasework import App
from leasework.errors import BadSchedule, ConfigError, WrongConnection
from leasework.integrations.django import app, base, views
from leasework.integrations.django.models import Job, Schedule
from leasework.testing import (
    assert_enqueued,
    drain,
    open_rival_session,
    sync,
    sync_context,
)
from leasework.testing.databases import connected_to
from tests.e2e.apps.shop.tasks import add_user, late, read_users
from tests.support.wait import until

PASSWORD = "correct horse"


class Transactions(TestCase):
    def test_a_job_can_be_seen_in_the_test_that_enqueued_it(self):
        job = app.sync.enqueue(add_user.using(priority=3).job(name="ada"))
        [row] = Job.objects.all()
        self.assertEqual((row.id, row.payload, row.priority), (job.id, {"name": "ada"}, 3))
        self.assertEqual((row.state, str(row)), ("available", f"add_user {job.id}"))

    def test_the_testing_kit_says_that_it_cannot_see_the_tests_transaction(self):
        app.sync.enqueue(add_user.job(name="ada"))
        with self.assertRaisesRegex(ConfigError, r"^assert_.*Job\.objects.*TransactionTestCase"):
            sync.assert_enqueued(app, add_user, name="ada")
        with self.assertRaisesRegex(ConfigError, r"^drain .*Job\.objects.*TransactionTestCase"):
            sync.drain(app)
        with connection.cursor() as cursor:
            cursor.execute("""select application_name from pg_stat_activity
                              where datname = current_database() and pid <> pg_backend_pid()""")
            self.assertEqual(cursor.fetchall(), [], "the test database can be dropped")

    async def test_the_testing_kit_says_so_in_a_coroutine_as_well(self):
        await sync_to_async(app.sync.enqueue)(add_user.job(name="ada"))
        with self.assertRaisesRegex(ConfigError, "^drain "):
            await drain(app)
        with self.assertRaisesRegex(ConfigError, "^assert_enqueued "):
            await assert_enqueued(app, add_user, name="ada")

    def test_a_job_goes_with_the_block_that_is_rolled_back(self):
        with transaction.atomic():
            app.sync.enqueue(add_user.job(name="kept"))
        with self.assertRaises(LookupError), transaction.atomic():
            app.sync.enqueue(add_user.job(name="gone"))
            raise LookupError
        self.assertEqual([row.payload for row in Job.objects.all()], [{"name": "kept"}])

    def test_schedules_and_deadlines_go_with_the_block_that_is_rolled_back(self):
        def stored():
            with connection.cursor() as cursor:
                cursor.execute("select name, paused from leasework.schedule order by name")
                schedules = cursor.fetchall()
                cursor.execute("select name, state from leasework.deadline order by name")
                return schedules, cursor.fetchall()

        schedules, before = app.sync.schedules, ([("kept", False)], [("books", "armed")])
        schedules.put("kept", add_user, every=60, arguments={"name": "ada"})
        books = app.sync.deadline("books", due=60, on_breach=late)
        self.assertEqual(stored(), before)
        [row] = Schedule.objects.all()
        self.assertEqual((str(row), row.task_name, row.last_state), ("kept", "add_user", None))
        with self.assertRaises(LookupError), transaction.atomic():
            schedules.put("gone", add_user, every=60, arguments={"name": "eve"})
            schedules.pause("kept")
            app.sync.deadline("taxes", due=60, on_breach=late)
            self.assertTrue(books.met())
            changed = ([("gone", False), ("kept", True)], [("books", "met"), ("taxes", "armed")])
            self.assertEqual(stored(), changed)
            schedules.resume("kept")
            schedules.delete("gone")
            self.assertTrue(app.sync.deadline("taxes").cancel())
            changed = ([("kept", False)], [("books", "met"), ("taxes", "cancelled")])
            self.assertEqual(stored(), changed)
            raise LookupError
        self.assertEqual(stored(), before)
        with self.assertRaisesRegex(BadSchedule, "no schedule is named 'gone'"):
            schedules.pause("gone")

    def test_jobs_are_enqueued_in_bulk(self):
        app.sync.enqueue_many(add_user.job(name=str(n)) for n in range(30))
        self.assertEqual(Job.objects.count(), 30)

    def test_a_task_that_a_test_calls_leaves_its_transaction_open(self):
        pk = add_user(sync_context(), name="ada")
        self.assertEqual(User.objects.get().pk, pk)

    def test_a_job_does_not_use_a_connection_that_has_become_too_old(self):
        handler = app.registry.as_handler(lambda: connection.connection)

        def run_in_a_thread_with_an_old_connection():
            connection.ensure_connection()
            connection.close_at = 0
            return handler()

        with ThreadPoolExecutor(1) as thread:
            self.assertIsNone(thread.submit(run_in_a_thread_with_an_old_connection).result())

    def test_the_migrations_agree_with_the_models(self):
        call_command("makemigrations", "leasework", check=True, dry_run=True, verbosity=0)

    def test_the_fixture_leasework_app_cannot_take_the_app_away_from_django(self):
        with self.assertRaisesRegex(ConfigError, "Django's test runner"):
            connected_to(app, "postgresql:///other").__enter__()
        self.assertEqual(app.database, "default")

    def test_a_broken_block_is_refused(self):
        with transaction.atomic():
            transaction.set_rollback(True)
            with self.assertRaises(WrongConnection):
                app.sync.enqueue(add_user.job(name="lost"))
            transaction.set_rollback(False)


class Committed(TransactionTestCase):
    def tearDown(self):
        sync.clear(app)  # as the documentation says

    def test_nothing_of_a_test_is_left_for_the_next_one(self):
        unique = add_user.using(unique="ada").job(name="ada")
        app.sync.enqueue(unique)
        sync.drain(app)
        app.sync.enqueue(unique)
        self.tearDown()
        self.assertFalse(Job.objects.exists())
        self.assertTrue(app.sync.enqueue(unique).created)

    def no_other_connection_is_open(self):
        """Of Django: leasework's own connections have a name."""
        others = """select pid from pg_stat_activity where datname = current_database()
                    and application_name = '' and pid <> pg_backend_pid()"""

        def found():
            with connection.cursor() as cursor:
                cursor.execute(others)
                return cursor.fetchall()

        until(lambda: not found(), 10, "the end of the other connections")

    def test_a_job_outside_any_block_is_committed_at_once(self):
        job = app.sync.enqueue(add_user.job(name="ada"))
        self.assertEqual(app.sync.get(job.id).payload, {"name": "ada"})

    def test_jobs_run_in_the_test_database(self):
        app.sync.enqueue(add_user.job(name="ada"))
        sync.assert_enqueued(app, add_user, name="ada")

        async def run():
            try:
                return await drain(app)
            finally:
                await app.close()

        [record] = asyncio.run(run())
        self.assertEqual(record.result, User.objects.get().pk)

    def test_an_async_job_keeps_its_connection_when_another_one_ends(self):
        User.objects.bulk_create([User(username=name) for name in ("ada", "eve")])
        app.sync.enqueue(read_users.job())
        record = sync.drain(app)[0]
        self.assertEqual(record.result, ["ada", "eve"], record.last_error)

    def test_middleware_leaves_no_connection_open(self):
        @app.middleware
        async def counted(ctx, call_next):
            await User.objects.acount()
            return await call_next()

        self.addCleanup(app.registry.middleware.clear)
        app.sync.enqueue(add_user.job(name="ada"))
        [record] = sync.drain(app)
        self.assertEqual(record.state, "completed")
        self.no_other_connection_is_open()

    def test_delays_pass_in_the_test_database(self):
        app.sync.enqueue(add_user.using(run_in=3600).job(name="ada"))
        self.assertEqual(sync.drain(app), [])
        [record] = sync.drain(app, until=timedelta(hours=1, seconds=1))
        self.assertEqual(record.result, User.objects.get().pk)

    def use_the_dsn_of_before(self):
        """As in the first call of a test run."""
        app.sync.close()
        App.configure(app, dsn=app.settings.dsn.replace("dbname=test_", "dbname="))

    def test_a_lock_may_be_the_first_to_follow_django_to_the_test_database(self):
        self.use_the_dsn_of_before()
        with app.sync.lock("nightly"):
            self.assertIn("dbname=test_", app.settings.dsn)
        app.sync.close()

    def test_a_second_session_is_in_the_test_database(self):
        self.use_the_dsn_of_before()
        with open_rival_session(app) as rival:
            [(name,)] = rival.execute("select current_database()")
        self.assertTrue(name.startswith("test_"), name)

    def test_a_new_password_alone_does_not_need_new_connections(self):
        settings = async_to_sync(app.located)()
        tokens = iter(range(9))

        def with_a_new_token(alias):
            return make_conninfo(settings.dsn, password=f"token-{next(tokens)}")

        with mock.patch.object(base, "database_dsn", with_a_new_token):
            with app.sync.lock("nightly"):
                self.assertEqual(app.sync.jobs(), [])
            app.sync.close()

    def test_leaseworks_own_connections_assume_the_role_too(self):
        role = f"owner {os.getpid()}"
        with connection.cursor() as cursor:
            cursor.execute(f'create role "{role}"')
        try:
            with mock.patch.dict(connection.settings_dict["OPTIONS"], assume_role=role):
                dsn = base.database_dsn("default")
            with psycopg.connect(dsn) as own:
                self.assertEqual(own.execute("select current_user").fetchone(), (role,))
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f'drop role "{role}"')

    def test_the_app_follows_django_to_the_test_database(self):
        settings = async_to_sync(app.located)()
        name = connection.settings_dict["NAME"]
        self.assertTrue(name.startswith("test_"))
        self.assertIn(f"dbname={name}", settings.dsn)


class Dashboard(TransactionTestCase):
    def setUp(self):
        self.job = app.sync.enqueue(add_user.job(name="ada"))
        self.page = f"/ops/jobs/jobs/{self.job.id}"

    def tearDown(self):
        with connection.cursor() as cursor:
            cursor.execute("delete from leasework.job")
        app.sync.close()

    def client_of(self, **fields):
        client = Client(enforce_csrf_checks=True)
        user = User.objects.create_user(f"user{User.objects.count()}", **fields)
        client.force_login(user)
        return client, user

    def cancel(self, client, token, **extra):
        form = f"form_token={token}&act=cancel"
        kind = "application/x-www-form-urlencoded"
        return client.post(f"{self.page}/act", form, content_type=kind, **extra)

    def token(self, client):
        found = re.search(
            r'name="form_token" value="(\w+)"', client.get(self.page).content.decode()
        )
        return found[1] if found else ""

    def test_nobody_sees_it_without_the_projects_login(self):
        answer = Client().get("/ops/jobs/now")
        self.assertRedirects(
            answer, "/admin/login/?next=/ops/jobs/now", fetch_redirect_response=False
        )

    def test_the_login_that_the_project_sets_comes_before_the_admins(self):
        with override_settings(LOGIN_URL="/enter/"):
            answer = Client().get("/ops/jobs/now")
        self.assertRedirects(answer, "/enter/?next=/ops/jobs/now", fetch_redirect_response=False)

    def test_the_probes_need_no_login_and_the_metrics_do(self):
        for probe in ("livez", "readyz"):
            answer = Client().get(f"/ops/jobs/{probe}")
            self.assertEqual((answer.status_code, answer.content), (200, b"ok\n"))
        self.assertEqual(Client().get("/ops/jobs/metrics").status_code, 302)

    def test_a_user_who_is_not_staff_is_refused(self):
        client, _ = self.client_of(is_superuser=True)
        self.assertEqual(client.get("/ops/jobs/now").status_code, 403)

    def test_staff_read(self):
        client, _ = self.client_of(is_staff=True)
        home = client.get("/ops/jobs/")
        self.assertEqual((home.status_code, home["location"]), (303, "/ops/jobs/now"))
        page = client.get(self.page)
        self.assertContains(page, str(self.job.id))
        self.assertEqual(page["x-frame-options"], "DENY")
        self.assertIn("leasework_session", page.cookies)
        links = set(re.findall(r'(?:href|src|action|data-live)="([^"]+)"', page.content.decode()))
        self.assertTrue(links and all(link.startswith(("/ops/jobs/", "#")) for link in links))
        for link in links:
            if "/static/" in link:
                self.assertEqual(client.get(link).status_code, 200, link)
        self.assertFalse(client.get("/ops/jobs/live").json()["away"])

    def test_only_who_has_the_permission_acts(self):
        for fields, permitted in ((), False), ((), True), (("is_superuser",), False):
            client, user = self.client_of(is_staff=True, **dict.fromkeys(fields, True))
            if permitted:
                user.user_permissions.add(Permission.objects.get(codename="operate"))
            token = self.token(client)
            answer = self.cancel(client, token)
            expected = 303 if permitted or fields else 403
            self.assertEqual(answer.status_code, expected, (fields, permitted))

    def test_an_act_carries_the_users_name_and_needs_the_forms_token(self):
        client, user = self.client_of(is_staff=True, is_superuser=True)
        token = self.token(client)
        self.assertEqual(self.cancel(client, "0" * 64).status_code, 403)
        forged = self.cancel(client, token, HTTP_ORIGIN="https://evil.example")
        self.assertEqual(forged.status_code, 403)
        self.assertEqual(app.sync.get(self.job.id).state, "available")
        other, _ = self.client_of(is_staff=True, is_superuser=True)
        self.assertEqual(self.cancel(other, token).status_code, 403, "the token of another user")
        answer = self.cancel(client, token, HTTP_ORIGIN="http://testserver")
        self.assertEqual((answer.status_code, answer["location"]), (303, self.page))
        self.assertEqual(app.sync.get(self.job.id).state, "cancelled")
        with connection.cursor() as cursor:
            cursor.execute(
                "select fields ->> 'who' from leasework.events where kind = 'person_acted'"
            )
            self.assertIn((user.username,), cursor.fetchall())

    def test_its_forms_are_signed_with_the_projects_secret(self):
        client, _ = self.client_of(is_staff=True, is_superuser=True)
        token = self.token(client)
        views._site.cache_clear()
        with override_settings(SECRET_KEY="another secret of another project"):
            views._site(False)
        self.assertEqual(self.cancel(client, token).status_code, 403)
        views._site.cache_clear()
        self.assertEqual(self.cancel(client, token).status_code, 303)
