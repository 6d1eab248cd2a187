-- The campaign's fenced duties: a row for each transaction of a leader that committed.
-- locks: none that anybody could want, in a schema that was made just now
-- index: none
create table leasehold.chaos_duty (
    duty  text   not null,
    term  bigint not null
)
