-- Part of the statements that run jobs again: inserts the rows of `undone`, from the history, with no attempts made.
-- index: deadline_pkey
again as (
    insert into leasehold.job ({{job/_kept}}, last_error, run_at, deadlines)
    select distinct on (id) {{job/_kept}}, last_error, coalesce(%(now)s::timestamptz, now()),
           (select true from leasehold.deadline x -- a scalar subquery, and hidden from deadline_due
            where x.id = undone.id and case x.state when 'armed' then true end limit 1) is not null
    from undone order by id, finished_at desc
    on conflict (id) do nothing
    returning id, queue
)
