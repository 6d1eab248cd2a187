-- The record of durable work, beside that of claims (tests/limits_fire/record.sql): each change, and its transaction.
create table fire.log (
    n bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(),
    began timestamptz not null default now(), xid xid8 not null default pg_current_xact_id(),
    what text not null, op text not null, row jsonb not null);
create table effect (job uuid not null, name text not null, xid xid8 not null default pg_current_xact_id());

create function fire.log() returns trigger language plpgsql as $$
begin
    insert into fire.log (what, op, row) values (tg_argv[0], lower(tg_op), to_jsonb(coalesce(new, old)));
    return null;
end $$;
create trigger log after insert or update or delete on leasework.step for each row execute function fire.log('step');
create trigger log after insert or delete on leasework.inbox for each row execute function fire.log('signal');
create trigger log after insert on leasework.job for each row execute function fire.log('made');
create trigger log after insert on leasework.job_done for each row execute function fire.log('done');
create trigger log after update on leasework.batch for each row
when (new.ended_at is not null) execute function fire.log('ended');
create trigger log_flag after update on leasework.job for each row
when (new.cancel_requested and not old.cancel_requested) execute function fire.log('flag');
