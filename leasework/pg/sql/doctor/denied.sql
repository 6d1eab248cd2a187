-- Those of these privileges, on tables, sequences and functions, that the role lacks.
-- locks: none
-- index: none
select w.name, w.privilege
from unnest(%(names)s::text[], %(privileges)s::text[]) with ordinality as w (name, privilege, place)
left join pg_namespace n on n.nspname = %(schema)s
left join pg_class c on c.relnamespace = n.oid and c.relname = w.name
left join pg_proc p on p.pronamespace = n.oid and p.proname = w.name and w.privilege = 'execute'
where not coalesce(case when w.privilege = 'execute' then has_function_privilege(p.oid, 'execute')
                        when c.relkind = 'S' then has_sequence_privilege(c.oid, w.privilege)
                        else has_table_privilege(c.oid, w.privilege) end, false)
order by w.place
