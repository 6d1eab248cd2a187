"""Measures of limits with three worker processes, of which one is killed: how exactly a rate, a
cost and the shares of tenants are used. And without a kill: how soon a slot is taken again, and
what jobs cost beside a held snapshot.

python -m tests.limits_rates rate    # 60 s of Rate(10, per=1.0, burst=1)
python -m tests.limits_rates cost    # 90,000 a minute, jobs of 500 to 8,000
python -m tests.limits_rates fair    # one tenant with 1,000,000 jobs, and nine with 1,000
python -m tests.limits_rates freed   # 30 s of a limit of one job at a time
python -m tests.limits_rates held --minutes 10   # 500 jobs a second, with limits of concurrency
python -m tests.limits_rates held_rate --minutes 10   # the same with one bucket
"""
