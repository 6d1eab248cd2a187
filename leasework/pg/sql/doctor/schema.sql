-- Whether the schema exists, who owns it, and whether this role may use it.
-- locks: none
-- index: pg_namespace_nspname_index
select n.nspowner::regrole::text, has_schema_privilege(n.oid, 'usage'),
       exists (select 1 from pg_class c where c.relnamespace = n.oid and c.relname = 'migration')
from pg_namespace n where n.nspname = %(schema)s
