-- Those of these privileges, on the schema's tables, sequences and functions, that the role lacks.
-- locks: none
-- index: none
select w.name, w.privilege
from pg_namespace n
cross join unnest(array_append(%(names)s::text[], 'the schema'), array_append(%(privileges)s::text[], 'usage'))
    with ordinality as w (name, privilege, place)
left join pg_class c on c.relnamespace = n.oid and c.relname = w.name
left join pg_proc p on p.pronamespace = n.oid and p.proname = w.name and w.privilege = 'execute'
where n.nspname = %(schema)s
  and not coalesce(case when w.name = 'the schema' then has_schema_privilege(n.oid, 'usage')
                        when w.privilege = 'execute' then has_function_privilege(p.oid, 'execute')
                        when c.relkind = 'S' then has_sequence_privilege(c.oid, w.privilege)
                        else has_table_privilege(c.oid, w.privilege) end, false)
order by w.place
