-- All objects of a schema as lines of text, for `leasework schema verify`. Daily partitions are left out, because they
-- differ between databases.
select format('column %%s.%%s %%s%%s%%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
              case when a.attnotnull then ' not null' else '' end,
              coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where n.nspname = %(schema)s and a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p', 'v')
  and c.relname !~ '^job_done_[0-9]{8}$'
union all
select format('index %%s', pg_get_indexdef(i.indexrelid))
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname !~ '^job_done_[0-9]{8}$'
union all
select format('view %%s %%s', c.relname, pg_get_viewdef(c.oid))
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relkind = 'v'
union all
select format('function %%s', pg_get_functiondef(p.oid))
from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname = %(schema)s
union all
select format('trigger %%s', pg_get_triggerdef(t.oid))
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and not t.tgisinternal and t.tgparentid = 0 -- not a partition's copy
union all
select format('sequence %%s', c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relkind = 'S'
