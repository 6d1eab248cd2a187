------------------------------- MODULE Deadline -------------------------------
(* The sweep of deadlines against the completion of their job                 *)
(* (sql/deadline/sweep.sql, sql/job/ack.sql and the trigger deadline_judge),  *)
(* under READ COMMITTED: a statement sees what was committed when it began,   *)
(* waits for row locks, and then looks at the row again. Any number of        *)
(* sweepers run at once (two leaders, or a sweep whose leader is gone), each  *)
(* may die at any step, and its transaction is then rolled back whole.        *)
(* One deadline, due from the beginning: what is modelled is the race.        *)
EXTENDS Naturals, Sequences

CONSTANTS Sweeper, None,
    MaxSweeps,  \* of one sweeper: the bound of the search
    Without     \* the protections that this build lacks

ASSUME Without \subseteq
    { "row lock",           \* else the sweep reads the row and locks nothing before it writes
      "strong lock",        \* else the sweep locks FOR KEY SHARE
      "state guard",        \* else a write does not name the state that it ends
      "one transaction",    \* else the verdict commits before the callback is enqueued
      "unique key" }        \* else nothing refuses a second callback of the deadline

RowLock == "row lock" \notin Without
StrongLock == "strong lock" \notin Without
StateGuard == "state guard" \notin Without
OneTransaction == "one transaction" \notin Without
UniqueKey == "unique key" \notin Without

VARIABLES
    state,      \* the committed verdict: "armed", "met", "breached"
    told,       \* every verdict that was committed, in order: what a reader could have seen
    callbacks,  \* committed callback jobs
    sweep,      \* a sweeper: [phase, breach]; breach: it saw, or still sees, the deadline armed
    count,      \* of each sweeper's sweeps
    writer,     \* who holds the row by an uncommitted UPDATE: a sweeper, "ack", or None
    ack         \* the completion: "none", "begun", "written", "done"

vars == <<state, told, callbacks, sweep, count, writer, ack>>
NoSweep == [phase |-> "none", breach |-> FALSE]

Init ==
    /\ state = "armed" /\ told = <<>> /\ callbacks = 0
    /\ sweep = [s \in Sweeper |-> NoSweep]
    /\ count = [s \in Sweeper |-> 0]
    /\ writer = None /\ ack = "none"

\* FOR UPDATE excludes everybody; FOR KEY SHARE neither another one nor an UPDATE of no key.
Excludes(s) == RowLock /\ StrongLock /\ sweep[s].phase \in {"locked", "written", "keyed"}
Free(s) == writer = None /\ \A o \in Sweeper \ {s} : ~Excludes(o)

Verdict(v) == state' = v /\ told' = Append(told, v)

------------------------------------------------------------------------------
(* The sweep.                                                                 *)
Begin(s) == \* its snapshot
    /\ sweep[s].phase = "none" /\ count[s] < MaxSweeps
    /\ sweep' = [sweep EXCEPT ![s] = [phase |-> "begun", breach |-> state = "armed"]]
    /\ count' = [count EXCEPT ![s] = @ + 1]
    /\ UNCHANGED <<state, told, callbacks, writer, ack>>

Lock(s) == \* SKIP LOCKED: a row that somebody holds is passed over; then it is looked at again
    /\ sweep[s].phase = "begun"
    /\ sweep' = [sweep EXCEPT ![s] =
            IF ~@.breach THEN NoSweep
            ELSE IF ~RowLock THEN [@ EXCEPT !.phase = "locked"]
            ELSE IF (StrongLock => Free(s)) /\ state = "armed" THEN [@ EXCEPT !.phase = "locked"]
            ELSE NoSweep]
    /\ UNCHANGED <<state, told, callbacks, count, writer, ack>>

Write(s) == \* the UPDATE: waits for who holds the row, then looks at its own condition again
    /\ sweep[s].phase = "locked" /\ Free(s)
    /\ IF StateGuard /\ state # "armed"
       THEN sweep' = [sweep EXCEPT ![s] = NoSweep] /\ UNCHANGED writer
       ELSE sweep' = [sweep EXCEPT ![s].phase = "written"] /\ writer' = s
    /\ UNCHANGED <<state, told, callbacks, count, ack>>

CommitVerdict(s) == \* only a build with two transactions
    /\ ~OneTransaction /\ sweep[s].phase = "written"
    /\ Verdict("breached")
    /\ writer' = None
    /\ sweep' = [sweep EXCEPT ![s].phase = "told"]
    /\ UNCHANGED <<callbacks, count, ack>>

CommitCallback(s) ==
    /\ ~OneTransaction /\ sweep[s].phase = "told"
    /\ callbacks' = IF UniqueKey /\ callbacks > 0 THEN callbacks ELSE callbacks + 1
    /\ sweep' = [sweep EXCEPT ![s] = NoSweep]
    /\ UNCHANGED <<state, told, count, writer, ack>>

Commit(s) ==
    /\ OneTransaction /\ sweep[s].phase = "written"
    /\ Verdict("breached")
    /\ callbacks' = IF UniqueKey /\ callbacks > 0 THEN callbacks ELSE callbacks + 1
    /\ writer' = None
    /\ sweep' = [sweep EXCEPT ![s] = NoSweep]
    /\ UNCHANGED <<count, ack>>

Die(s) == \* a killed process or backend: what has not committed is undone
    /\ sweep[s].phase # "none"
    /\ writer' = IF writer = s THEN None ELSE writer
    /\ sweep' = [sweep EXCEPT ![s] = NoSweep]
    /\ UNCHANGED <<state, told, callbacks, count, ack>>

------------------------------------------------------------------------------
(* The completion: the ack deletes the job, and its trigger writes the verdict *)
(* in the same transaction.                                                   *)
AckBegin ==
    /\ ack = "none" /\ ack' = "begun"
    /\ UNCHANGED <<state, told, callbacks, sweep, count, writer>>

AckWrite == \* waits for the row, then looks again
    /\ ack = "begun" /\ writer = None /\ \A s \in Sweeper : ~Excludes(s)
    /\ IF StateGuard /\ state # "armed"
       THEN ack' = "done" /\ UNCHANGED writer
       ELSE ack' = "written" /\ writer' = "ack"
    /\ UNCHANGED <<state, told, callbacks, sweep, count>>

AckCommit ==
    /\ ack = "written" /\ ack' = "done" /\ writer' = None
    /\ Verdict("met")
    /\ UNCHANGED <<callbacks, sweep, count>>

AckFails == \* rolled back, and acked again
    /\ ack = "written" /\ ack' = "begun" /\ writer' = None
    /\ UNCHANGED <<state, told, callbacks, sweep, count>>

------------------------------------------------------------------------------
Next ==
    \/ AckBegin \/ AckWrite \/ AckCommit \/ AckFails
    \/ \E s \in Sweeper :
        \/ Begin(s) \/ Lock(s) \/ Write(s) \/ Commit(s)
        \/ CommitVerdict(s) \/ CommitCallback(s) \/ Die(s)

Spec == Init /\ [][Next]_vars

(* The promises.                                                              *)
OneVerdict == Len(told) <= 1
OneCallback == callbacks <= 1
\* A breach and its callback are one commit: nobody sees the one without the other.
CallbackOfEachBreach == callbacks = (IF \E i \in DOMAIN told : told[i] = "breached" THEN 1 ELSE 0)
\* What a sweep has locked it may rely on, such as for the callback that it makes of it.
LockedIsOurs == \A s \in Sweeper : sweep[s].phase = "locked" => state = "armed"

\* Shown false on purpose: a completion waits for a sweep that holds the row, while another one begins.
NeverNear ==
    ~(\E s, o \in Sweeper :
        s # o /\ sweep[s].phase = "written" /\ sweep[o].phase = "begun" /\ ack = "begun")
=============================================================================
