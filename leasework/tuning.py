"""Constants that tune the services. They are not settings, because no user needs to change them."""

from __future__ import annotations


class Tuning:
    """Times are in seconds, counts are rows or jobs. The docstring of several constants stands
    under the last of them."""

    prefetch_claims: float = 3.0
    prefetch_seconds: float = 0.05
    prefetch_most_seconds: float = 0.5
    """Jobs are claimed ahead for so many times the duration of the last claim, at least and at most
    these times, so that no slot waits for a claim. While many workers claim, claims are slower and
    therefore larger."""
    prefetch_batches: int = 2
    """The most batches that are claimed ahead."""
    long_claim_jobs: int = 100
    long_claim_seconds: float = 0.05
    apart_seconds: float = 60.0
    """After a claim that found this many jobs, or took this long to find any, claims use their own
    connection for ``apart_seconds``. If it cannot be opened, they do not try again for as long."""
    give_back_seconds: float = 1.0
    """Jobs that were claimed ahead go back when no job has ended for this time."""
    contended_seconds: float = 0.01
    """The pause before candidates that other workers hold are tried again."""
    busy_queues: int = 10
    """The most queues with many jobs in one claim."""
    candidates_per_job: int = 3
    candidate_rounds: int = 4
    """Candidates for each job in a claim by advisory locks, because other workers try them too, and
    the most looks at them."""
    begin_ask_seconds: float = 0.5
    """Between two questions of a worker which transaction keeps its claims from beginning later,
    and between two which begins workers share."""
    unknown_tasks: int = 1000
    """The most task names that a claim excludes, and that a node reports as unknown."""
    kept_lines: int = 50
    """The most lines of a handler's log that are recorded with a failed attempt."""
    early_cancels: int = 1000
    """Cancels kept for claims that are not here. The oldest are dropped first."""
    full_batch_rows: int = 100
    """A batch of this many outcomes is written without waiting for more."""
    at_risk_jobs: int = 100
    brief_run_seconds: float = 0.0005
    lasting_run_seconds: float = 0.02
    """If the average run takes a time between these, at most so many jobs run or wait to be
    recorded, unless there are more slots."""
    locked_row_seconds: float = 0.1
    """The pause before an outcome is written again whose row a transaction holds."""
    unknown_version_seconds: float = 1.0
    unknown_version_share: float = 0.25
    unknown_version_longest: float = 15.0
    """How long a job waits whose arguments are of a version that this worker does not know: a share
    of the time since the worker first saw that version, within limits."""
    unreadable_seconds: float = 300.0
    """The pause before a job is tried again whose arguments no worker could read. Its event stays a
    problem for longer."""
    completion_first_look: float = 0.01
    completion_longest_look: float = 1.0
    """The first and the longest pause before a look at a completion whose transaction is open."""
    stretch_seconds: float = 0.001
    """After this time, a runner yields to the event loop."""
    long_run_seconds: float = 3600.0
    """A job without a timeout that runs longer than this is named in an event."""
    long_jobs_seconds: float = 10.0
    """A node reports the jobs that have run for this long, by task."""
    overdue_jobs: int = 20
    """The most overdue jobs, and tasks with long jobs, that a node reports."""
    jobs_per_child: int = 1000
    child_idle_seconds: float = 60.0
    """A child process is replaced after this many jobs, and ends after this time without one."""
    child_load_seconds: float = 60.0
    """The longest time to start a child and import the handler's module. The job's timeout begins
    after it."""
    child_leave_seconds: float = 2.0
    child_silent_seconds: float = 1.0
    """How long an idle child has to end by itself, and how long its process and its socket may end
    apart."""
    alone_seconds: float = 60.0
    """The longest time that a suspect keeps other jobs from starting before it runs alone, and the
    time until a node may take it again."""
    no_start_seconds: float = 1.0
    """A job that could not start keeps its slot for this time, to limit futile claims."""
    no_start_known_seconds: float = 60.0
    """After this time without a try, it is unknown whether a start would work."""
    enqueue_tries: int = 4
    enqueue_first_pause: float = 0.1
    """Tries while the database does not answer, and the pause before the second one."""
    copy_rows: int = 20
    """From this many plain jobs on, COPY is faster than the function."""
    sweep_seconds: float = 30.0
    follower_sweep_seconds: float = 120.0
    """The longest time between two sweeps of deadlines by the leader, and by a follower: that only
    counts for deadlines that were armed since its last look and that no leader decides."""
    follower_behind_seconds: float = 3.0
    """A follower looks this long after the next deadline. By then, a leader has decided it."""
    deadline_prune_seconds: float = 600.0
    rescue_idle_seconds: float = 10.0
    """Between two looks for jobs of dead nodes while nothing says that there are any."""
    batch_seconds: float = 0.5
    """Between two looks at the open batches."""
    rescue_page: int = 100
    rescue_pages: int = 10
    """Dead nodes in one page of such a look, and its most pages."""
    stranded_pages: int = 1000
    stranded_seconds: float = 1.0
    """Pages of jobs that are searched at once for jobs whose node does not exist, and the time
    between two such searches, until all pages were searched once."""
    history_seconds: float = 20.0
    history_rows: int = 5000
    """Between two updates of the counts for each minute, and finished jobs that one counts."""
    schedule_look_seconds: float = 30.0
    undecided_look_seconds: float = 5.0
    """The longest pause between two looks at the schedules, which each due moment ends; and while
    some schedules cannot be decided."""
    refused_schedule_seconds: float = 60.0
    """The pause before a schedule is tried again that the database refused."""
    schedule_ticks: int = 10
    """Ticks of one schedule in one statement, however many schedules are due."""
    prune_held_seconds: float = 60.0
    prune_held_tries: int = 5
    """The pause of the pruner while another transaction locks a day of the history, and after how
    many failed tries it emits an event."""
    sync_seconds: float = 60.0
    """Between two looks at releases. One may come and go between two heartbeats."""
    event_buffer: int = 10_000
    """Events that wait to be written. When there are more, the oldest are dropped."""
    event_rows: int = 500
    event_gather_seconds: float = 0.5
    """Events are gathered for this time, and so many are written as one batch."""
    event_rest_seconds: float = 10.0
    """The pause while there is nothing to write. Each event ends it."""
    service_first_pause: float = 0.1
    service_longest_pause: float = 5.0
    """The pause before a service tries again after an error. It doubles with each error."""
    repeat_seconds: float = 60.0
    """Between two reports of an error that repeats."""
    service_gate_seconds: float = 5.0
    """Between two looks at a closed gate. Opening it wakes the service."""
    service_conflicts: int = 5
    """After this many conflicts in a row, an event reports the lock that does not end."""
    quick_batch_seconds: float = 1.0
    """Batches grow only while a call takes less than this time."""
    listen_retry_seconds: float = 2.0
    """The pause before a process listens again after an error."""
    clock_step_seconds: float = 1.0
    """The database's clock was set if it moved by more than this. Time services make smaller
    corrections."""
    watchdog_leave_seconds: float = 5.0
    """The time that the watchdog's process has to end."""
    handovers: int = 10
    """How often in a row a lock passes between waiters of one process. Then it is the turn of other
    processes, so a process waits for at most this many holders in each of them."""
    leader_retry_seconds: float = 0.5
    """The pause before a leader tries again."""
    fence_pause_seconds: float = 2.0
    """The pause before a lock is tried again whose fence a transaction holds."""
    linger_seconds: float = 2.0
    """How long a light node stays after its last user left, because another may follow."""
    verify_seconds: float = 1.0
    """Between two queries of pg_locks for an advisory lock."""
    noted_seconds: float = 12 * 3600.0
    noted_locks: int = 10_000
    """How long, and how many, names of advisory locks a process remembers as stored."""
    wait_margin_seconds: float = 1.0
    """The server ends a wait. The client gives up this much later."""
    refused_seconds: float = 1.0
    """When the server refuses another connection, the calls share the open ones for this time."""
    socket_look_seconds: float = 0.5
    """How often the socket is read during a call, even if the event loop reports no input. So a
    connection that was reset is noticed long before the call's time is over."""
    line_seconds: float = 1 / 5000
    byte_seconds: float = 1 / 100_000
    """How much each line and each byte sent extends a call's time limit, for slow links."""
    cancelled_seconds: float = 5.0
    """How long a statement whose caller was cancelled may take to end in the server."""
    prepare_uses: int = 5
    prepare_bytes: int = 1 << 16
    """A statement is prepared after so many uses, or at once with bigger values. The server's
    statement_timeout then starts only when they have arrived, which is late on a slow link."""
    prepared_statements: int = 100
    """The most prepared statements of a connection. Others are not prepared."""
    migration_seconds: float = 300.0
    doctor_seconds: float = 20.0
    """The time limits of a migration, and of the doctor's look at the set-up."""
    quick_death_seconds: float = 10.0
    """A worker that lived for less time than this and ``call_timeout`` died at once."""
    restart_first_pause: float = 1.0
    restart_longest_pause: float = 30.0
    """The pause before the supervisor starts such a worker again. It doubles with each death."""
    stop_margin_seconds: float = 5.0
    """Added to the workers' own grace before the supervisor kills the remaining ones."""
    dead_group_seconds: float = 5.0
    """How long the killed children of a dead worker may take to disappear."""
    probe_exit_seconds: float = 10.0
    """How long a probe that could not load the application may take to exit."""
    certify_deaths: int = 10_000
    """Deaths kept while the database is unavailable. For older ones, the lease expires."""
    drain_look_seconds: float = 0.2
    report_seconds: float = 5.0
    """The longest time limit of one statement of a report. It is shorter than the 10 seconds after
    which Prometheus gives up a scrape."""
    metrics_seconds: float = 1.0
    """All requests within this time get the same text, so that many cost no more than one."""
    series: int = 20_000
    """The most series that are read of one metric."""
    locked_seconds: float = 2.0
    """How long status waits for what it reads while a session has locked a table."""
    pace_rows: int = 5000
    """The most minutes of the history that are read to see which tasks are slow."""
    pace_tasks: int = 20
    """The most tasks that are compared with their usual time."""
    read_rows: int = 10_000
    """The most nodes, leaders or schedules that are read for people."""
    page_rows: int = 5000
    page_bad_rows: int = 3000
    page_event_rows: int = 10_000
    """What one page examines: jobs, jobs that did not complete (each is on another page of the
    table), and events."""
    running_rows: int = 200_000
    """Ready jobs of one level of a queue that are examined to find the running ones."""
    step_rows: int = 20_000
    step_jobs: int = 10_000
    """Jobs that one step of a list or of an action examines, unless the state is a bad one, and the
    most that it changes."""
    search_seconds: float = 1.0
    """How long a page goes on with a search, if it does not find enough in its first step."""
    preview_steps: int = 3
    """After so many steps, the preview of an action stops counting."""
    page_act_seconds: float = 15.0
    """Then an action in the dashboard stops, before the web server ends the request."""
    locked_tries: int = 8
    locked_first_pause: float = 0.01
    """Tries of a cancel or a retry of one job whose row a transaction holds, and the pause before
    the second one."""
    unhandled_days: int = 7
    """How many days back a breach without its callback is a problem."""
    trend_bars: int = 12
    counted_failures: int = 100_000
    distinct_failures: int = 10_000
    looked_failures: int = 3000
    failure_kinds: int = 2000
    """Of failures by their errors: the parts of the trend; the most attempts that are counted; the
    most of one kind whose jobs are counted; the most whose jobs are looked at; the most kinds."""
    sorted_jobs: int = 10_000
    """The most jobs that a list sorts by something else than its usual order."""
    follow_seconds: float = 2.0
    """The pause between two looks for new jobs."""
    check_discards: int = 5000
    check_deaths: int = 50
    """The most discarded jobs and dead nodes that the checks examine."""
    term_events: int = 5000
    """The most events that explain the ends of terms."""
    login_seconds: float = 12 * 3600.0
    """A login of the dashboard lasts this long."""
    wrong_login_seconds: float = 0.5
    """How long a wrong login takes. They are handled one at a time."""
    body_bytes: int = 64 * 1024
    query_bytes: int = 8 * 1024
    form_fields: int = 100
    """The largest requests to the dashboard."""
    ready_seconds: float = 2.0
    """How long the database may take to answer the probe of readiness."""
    pulse_seconds: float = 2.0
    """The greatest age of the facts that pages show. They ask every two seconds (dash.js)."""
    shown_attempts: int = 200
    shown_nodes: int = 1000
    shown_jobs: int = 50
    shown_schedules: int = 50
    shown_events: int = 100
    shown_node_events: int = 20
    shown_rows: int = 200
    shown_terms: int = 20
    shown_queues: int = 200
    shown_tasks: int = 12
    shown_workers: int = 12
    shown_ticks: int = 24
    """The most rows of each kind on a page of the dashboard."""
    chart_minutes: int = 20_000
    chart_terms: int = 2000
    """The most that one chart is made of."""
    late_tick_seconds: float = 5.0
    """A tick that fired later than this is marked."""
    rate_minutes: int = 5
    """The span of the rates on the home page."""
