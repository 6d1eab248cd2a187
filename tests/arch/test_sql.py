"""House rules for SQL (CONTRIBUTING.md), each with a proof that it catches an offender."""

from __future__ import annotations

import textwrap

from tests.arch import sql_rules, tree

GOOD = textwrap.dedent("""\
    -- Completes a job that this claim holds.
    -- edge: running -> completed
    -- locks: the job's row
    -- index: job_pkey
    delete from leasework.job j  -- now() in a comment; is nothing
     where j.id = %(id)s and j.claim_token = %(token)s
       and j.run_at <= coalesce( %(now)s::timestamptz, now() )
""")
TABLE = {("running", "completed"), ("new", "available"), ("available", "running")}


def offences_of(rule, files=None) -> list[str]:
    files = tree.operation_files() if files is None else files
    return [f"{tree.short(p)}: {what}" for p in files for what in rule(p.read_text())]


def transitions() -> set[tuple[str, str]]:
    from tests.support.transitions import TRANSITIONS

    return {(str(a), str(b)) for a, b in TRANSITIONS}


def test_the_sql_folder_holds_sql():
    assert not tree.SQL.exists() or tree.operation_files() or tree.migration_files()


def test_sql_lies_in_noun_slash_verb():
    strays = [p for p in tree.operation_files() if tree.operation_name(p).count("/") != 1]
    assert not strays


# -- one statement a file ------------------------------------------------------------------------
def test_a_file_holds_one_statement():
    assert not (found := offences_of(sql_rules.statement_offences)), "\n".join(found)


def test_the_statement_rule_counts_statements_and_not_semicolons_in_strings():
    assert not sql_rules.statement_offences(GOOD)
    assert not sql_rules.statement_offences("select ';', \";\", $x$ ; $x$, e'\\';' /* ; */;\n")
    assert sql_rules.statement_offences("select 1; select 2")
    assert sql_rules.statement_offences("-- nothing;\n")


def test_a_shared_part_is_included_by_several_statements():
    texts = [p.read_text() for p in [*tree.operation_files(), *tree.shared_parts()]]
    for part in tree.shared_parts():
        marker = "{{" + tree.operation_name(part) + "}}"
        assert sum(marker in text for text in texts) > 1, f"{marker} is not shared"


# -- the header ----------------------------------------------------------------------------------
def test_a_file_says_its_purpose_its_locks_and_its_index():
    assert not (found := offences_of(sql_rules.header_offences)), "\n".join(found)


def test_the_header_rule_catches_each_missing_or_misspelt_line():
    assert not sql_rules.header_offences(GOOD)
    for line in GOOD.splitlines()[:1] + GOOD.splitlines()[2:4]:
        assert sql_rules.header_offences(GOOD.replace(line + "\n", "")), line
    assert sql_rules.header_offences(GOOD.replace("-- edge:", "-- edges:"))
    assert sql_rules.header_offences(GOOD.replace("running -> completed", "running => completed"))
    assert sql_rules.header_offences(GOOD.replace("job_pkey", ""))
    assert sql_rules.header_offences(GOOD.replace("-- locks", "-- token: none\n-- locks"))


# -- clocks --------------------------------------------------------------------------------------
def test_a_statement_takes_its_clock_from_the_caller():
    files = [*tree.operation_files(), *tree.shared_parts()]
    assert not (found := offences_of(sql_rules.clock_offences, files)), "\n".join(found)


def test_the_clock_rule_catches_each_way_to_read_a_clock():
    assert not sql_rules.clock_offences(GOOD)
    assert not sql_rules.clock_offences("select coalesce(%(now)s,\n clock_timestamp())")
    assert not sql_rules.clock_offences("select 'call now() later', \"now\"(1)")
    for bad in (
        "select now()",
        "select current_timestamp",
        "select clock_timestamp ()",
        "select statement_timestamp()",
        "select current_date",
        "select 'now'::timestamptz",
        "select coalesce(%(run_at)s, now())",
        "select coalesce(%(now)s::timestamptz, now()), NOW()",
    ):
        assert sql_rules.clock_offences(bad), bad


# -- edges ---------------------------------------------------------------------------------------
def test_every_edge_of_a_statement_is_in_the_table_of_transitions():
    def rule(sql: str) -> list[str]:
        return sql_rules.edge_offences(sorted(sql_rules.edges_anywhere(sql)), transitions())

    found = offences_of(rule, [*tree.operation_files(), *tree.migration_files()])
    assert not found, "\n".join(found)


def test_every_transition_of_the_table_is_made_by_some_statement():
    files = [*tree.operation_files(), *tree.migration_files()]
    if not tree.operation_files():
        return
    made = {edge for p in files for edge in sql_rules.edges_anywhere(p.read_text())}
    unmade = sorted(f"{a} -> {b}" for a, b in transitions() - made)
    assert not unmade, f"no statement declares these edges: {unmade}"


def test_the_edge_rule_catches_a_move_that_is_not_in_the_table():
    assert sql_rules.edges_anywhere(GOOD) == {("running", "completed")}
    assert not sql_rules.edge_offences([("running", "completed"), ("completed", "gone")], TABLE)
    assert sql_rules.edge_offences([("completed", "running")], TABLE)
    assert sql_rules.edge_offences([("new", "gone")], TABLE)
    assert sql_rules.edge_offences([("typo", "gone")], TABLE)


# -- tokens --------------------------------------------------------------------------------------
def test_every_write_to_a_running_job_names_its_token():
    assert not (found := offences_of(sql_rules.token_offences)), "\n".join(found)


def test_the_token_rule_catches_a_write_that_names_none():
    assert not sql_rules.token_offences(GOOD)
    tokenless = GOOD.replace("and j.claim_token = %(token)s", "-- claim_token, in words only")
    assert sql_rules.token_offences(tokenless)
    excused = tokenless.replace("-- locks", "-- token: none, because the node is dead\n-- locks")
    assert not sql_rules.token_offences(excused)


# -- who loads what ------------------------------------------------------------------------------
def test_every_file_is_loaded_by_exactly_one_place_in_the_store():
    files = {tree.operation_name(p) for p in tree.operation_files()}
    tables = [p for p in tree.python_files(tree.LAB) if p.name == "tables.py"]
    stores = [*tree.python_files(tree.PG), *tree.python_files(tree.PACKAGE / "store")]
    sources = {tree.short(p): p.read_text() for p in [*stores, *tables]}
    assert not (found := sql_rules.reference_offences(files, sources)), "\n".join(found)


def test_the_loading_rule_catches_the_unused_the_missing_and_the_shared():
    once = {"store.py": 'self.run("job/claim")'}
    assert not sql_rules.reference_offences({"job/claim"}, once)
    assert sql_rules.reference_offences({"job/claim", "job/ack"}, once)
    assert sql_rules.reference_offences(set(), once)
    assert sql_rules.reference_offences({"job/claim"}, {**once, "other.py": "x = 'job/claim'"})
