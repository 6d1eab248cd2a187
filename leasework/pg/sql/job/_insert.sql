-- Part of the statements that insert jobs with JSON options, as leasework.enqueue takes them: inserts the rows of
-- `wanted` (id, task, options, run_at, unique_key, schedule, tick_at, payload). Each statement adds its own ending.
insert into leasework.job (id, queue, task_name, priority, run_at, created_at, max_attempts, timeout_seconds,
                           requeue_seconds, history, unique_key, schedule, tick_at, payload, deadlines,
                           tags, version, on_failure, lane, costs, ready, held_because)
select w.id, coalesce(w.options ->> 'queue', 'default'), w.task, coalesce((w.options ->> 'priority')::smallint, 0),
       w.run_at, coalesce(%(now)s::timestamptz, now()), coalesce((w.options ->> 'max_attempts')::smallint, 5),
       (w.options ->> 'timeout')::real, (w.options ->> 'requeue_after')::real,
       coalesce((w.options ->> 'history')::boolean, true), w.unique_key, w.schedule, w.tick_at, w.payload,
       w.options ? 'deadline', array(select jsonb_array_elements_text(nullif(w.options -> 'tags', 'null'))),
       coalesce((w.options ->> 'version')::smallint, 1), leasework.callback_of(nullif(w.options -> 'on_failure', 'null')),
       leasework.lane_of(w.options), leasework.costs_of(w.options), leasework.lane_of(w.options) is null,
       case when leasework.lane_of(w.options) is not null then 'limit' end
from wanted w
