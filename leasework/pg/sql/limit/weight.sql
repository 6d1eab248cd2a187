-- Set a tenant's weight in a fair queue, until it is reset (null).
-- locks: the row of weight
-- index: weight_pkey
insert into leasework.weight as w (queue, tenant, set_weight)
values (%(queue)s, leasework.lane_part(%(tenant)s), %(weight)s::float8)
on conflict (queue, tenant) do update set set_weight = excluded.set_weight
