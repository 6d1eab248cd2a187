"""Measures of limits with three worker processes, of which one is killed: how exactly a rate, a
cost and the shares of tenants are used.

python -m tests.limits_rates rate    # 60 s of Rate(10, per=1.0, burst=1)
python -m tests.limits_rates cost    # 90,000 a minute, jobs of 500 to 8,000
python -m tests.limits_rates fair    # one tenant with 1,000,000 jobs, and nine with 1,000
"""
