-------------------------------- MODULE Lease --------------------------------
(* The lease of leasework/model/lease.py: processes, one row, a network that  *)
(* delays and loses, clocks that drift. A pause is a process that takes no    *)
(* step while the clocks go on, so it may happen anywhere.                    *)
(*                                                                            *)
(* The protocol: a candidate notes the row at receipt, takes it over by       *)
(* compare-and-swap when it was unchanged for Wait, and a holder trusts its   *)
(* term for Trust from before it sent. Each protection has a name; `Without`  *)
(* takes some out, and TLC then shows what they were good for.                *)
EXTENDS Naturals, TLC

CONSTANTS
    Proc,       \* the processes
    None,       \* nobody: the row was resigned
    Trust,      \* D, in ticks of the holder's clock
    Wait,       \* W, in ticks of the candidate's clock
    Drift,      \* by how many ticks one clock may be ahead of another
    MaxTerms,   \* acquisitions on a timeline: the bound of the search
    MaxTimeline,\* promotions: the bound of the search
    Without,    \* the protections that this build lacks
    World       \* what may happen besides (see below)

Protections ==
    { "observation",            \* else the database's clock decides a takeover
      "compare",                \* else an acquisition does not name what was seen
      "deadline",               \* else a holder believes until it is refused
      "counted from sending",   \* else the deadline counts from the receipt
      "down is final",          \* else an expired term may be renewed
      "two statements",         \* else renew and acquire are one
      "fenced sink",            \* else the sink takes what comes
      "lifted tokens",          \* else a token is the last one plus one, after a promotion too
      "shortcut on its timeline", \* else a resigned or own row is taken at once after a promotion
      "sight of its timeline"} \* else what was waited before a promotion counts after it

ASSUME Without \subseteq Protections
ASSUME World \subseteq {"resignations", "writes", "clock steps", "promotion"}

\* Each is a constant of its own, which TLC works out once.
Observation == "observation" \notin Without
Compare == "compare" \notin Without
Deadline == "deadline" \notin Without
FromSending == "counted from sending" \notin Without
DownIsFinal == "down is final" \notin Without
TwoStatements == "two statements" \notin Without
Fenced == "fenced sink" \notin Without
LiftedTokens == "lifted tokens" \notin Without
ShortcutChecked == "shortcut on its timeline" \notin Without
SightChecked == "sight of its timeline" \notin Without
Resignations == "resignations" \in World
Writes == "writes" \in World
ClockSteps == "clock steps" \in World
Promotions == "promotion" \in World

VARIABLES
    row,        \* [node, token, seq, tl]: the one row, with the timeline of its server
    replica,    \* what of it would survive a promotion now
    dbAge,      \* ticks since the row was written, by the database's clock; 0 unless it decides
    ahead,      \* by how many ticks a process's clock is ahead of true time
    held,       \* a process's term: [token, age]; age since t0, token 0 for none
    watch,      \* what a candidate saw: [on, row, age]; age since receipt
    sight,      \* age of the first answer that a process got from this timeline, or NoSight
    call,       \* the one call that a process waits for
    orphan,     \* a request that was given up and still travels
    write,      \* a token on its way to the sink; 0 for none
    sink,       \* [max, last]: the highest and the last token that it accepted
    past        \* history: [issued, begun, reused]

vars == <<row, replica, dbAge, ahead, held, watch, sight, call, orphan, write, sink, past>>

------------------------------------------------------------------------------
Lift == 10      \* stands for 2^32: a timeline's tokens are n * Lift + 0, 1, 2 ...
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

NoRow == [node |-> None, token |-> 0, seq |-> 0, tl |-> 0]
NoSight == Wait + 1
NoTerm == [token |-> 0, age |-> 0]
NoWatch == [on |-> FALSE, row |-> NoRow, age |-> 0]
NoCall == [kind |-> "none", names |-> NoRow, age |-> 0, answered |-> FALSE,
           ok |-> FALSE, got |-> NoRow]
Call(kind, names) == [NoCall EXCEPT !.kind = kind, !.names = names]
Token(t) == [NoRow EXCEPT !.token = t]

Init ==
    /\ row = NoRow
    /\ replica = NoRow
    /\ dbAge = 0
    /\ ahead = [p \in Proc |-> 0]
    /\ held = [p \in Proc |-> NoTerm]
    /\ watch = [p \in Proc |-> NoWatch]
    /\ sight = [p \in Proc |-> IF SightChecked THEN NoSight ELSE 0]
    /\ call = [p \in Proc |-> NoCall]
    /\ orphan = [p \in Proc |-> NoCall]
    /\ write = [p \in Proc |-> 0]
    /\ sink = [max |-> 0, last |-> 0]
    /\ past = [issued |-> 0, begun |-> 0, reused |-> FALSE]

Holding(term) == term.token # 0 /\ (Deadline => term.age < Trust)
Valid(p) == Holding(held[p])

------------------------------------------------------------------------------
(* Time. Each clock ticks by itself; true time is the slowest one, and no     *)
(* clock is ahead of it by more than Drift.                                   *)
Aged(term) ==
    IF term.token = 0 \/ ~Deadline THEN term
    ELSE IF term.age + 1 >= Trust /\ DownIsFinal THEN NoTerm
    ELSE [term EXCEPT !.age = Min(@ + 1, Trust)]

\* An answer that came too late, or to a term that is over, changes nothing any more.
Late(c, term) ==
    /\ c.answered /\ Deadline /\ FromSending /\ DownIsFinal
    /\ \/ c.kind = "acquire" /\ c.age >= Trust
       \/ c.kind = "renew" /\ (term.token # c.names.token \/ (c.ok /\ c.age >= term.age))

Waiting(c, term) == \* a call, a tick later
    LET older == IF Deadline /\ c.kind \in {"acquire", "renew"} THEN [c EXCEPT !.age = Min(@ + 1, Trust)] ELSE c
    IN  IF Late(older, term) THEN NoCall ELSE older

Tick(some) == \* the clocks of some processes go on
    LET up == [p \in Proc |-> IF p \in some THEN ahead[p] + 1 ELSE ahead[p]]
        trueTick == \A p \in Proc : up[p] > 0
        now == IF trueTick THEN [p \in Proc |-> up[p] - 1] ELSE up
    IN  /\ \A p \in Proc : now[p] <= Drift
        /\ ahead' = now
        /\ dbAge' = IF trueTick /\ ~Observation THEN Min(dbAge + 1, Wait) ELSE dbAge
        /\ held' = [p \in Proc |-> IF p \in some THEN Aged(held[p]) ELSE held[p]]
        /\ watch' = [p \in Proc |-> IF p \in some /\ watch[p].on
                        THEN [watch[p] EXCEPT !.age = Min(@ + 1, Wait)] ELSE watch[p]]
        /\ sight' = [p \in Proc |-> IF p \in some /\ sight[p] < Wait
                        THEN sight[p] + 1 ELSE sight[p]]
        /\ call' = [p \in Proc |-> IF p \in some
                        THEN Waiting(call[p], Aged(held[p])) ELSE call[p]]
        /\ UNCHANGED <<row, replica, orphan, write, sink, past>>

ClockStep == \* the database's wall clock jumps ahead: every row looks old
    /\ ClockSteps /\ ~Observation /\ dbAge < Wait
    /\ dbAge' = Wait
    /\ UNCHANGED <<row, replica, ahead, held, watch, sight, call, orphan, write, sink, past>>

------------------------------------------------------------------------------
(* What a process asks. Its t0 is the moment of this step.                    *)
Idle(p) == call[p].kind = "none"
Ask(p, request) == call' = [call EXCEPT ![p] = request]

Observe(p) == \* the row as the database reads it; asking changes nothing, so only the answer travels
    /\ Idle(p) /\ held[p].token = 0 /\ Observation
    /\ Ask(p, [Call("observe", NoRow) EXCEPT !.answered = TRUE, !.got = row])
    /\ UNCHANGED <<row, replica, dbAge, ahead, held, watch, sight, orphan, write, sink, past>>

AtOnce(p, seen) == \* nobody can believe that they hold it
    /\ seen.node \in {None, p}
    /\ ShortcutChecked => seen.token \div Lift = seen.tl \/ sight[p] = Wait

Acquire(p) ==
    /\ Idle(p)
    /\ held[p].token = 0 \/ (~TwoStatements /\ Valid(p))
    /\ Observation => watch[p].on /\ (watch[p].age >= Wait \/ AtOnce(p, watch[p].row))
    /\ Ask(p, Call("acquire", watch[p].row))
    /\ UNCHANGED <<row, replica, dbAge, ahead, held, watch, sight, orphan, write, sink, past>>

Renew(p) ==
    /\ Idle(p) /\ TwoStatements
    /\ Valid(p) \/ (~DownIsFinal /\ held[p].token # 0)
    /\ Ask(p, Call("renew", Token(held[p].token)))
    /\ UNCHANGED <<row, replica, dbAge, ahead, held, watch, sight, orphan, write, sink, past>>

Resign(p) == \* down first, then told
    /\ Resignations /\ Idle(p) /\ Valid(p)
    /\ Ask(p, Call("resign", Token(held[p].token)))
    /\ held' = [held EXCEPT ![p] = NoTerm]
    /\ UNCHANGED <<row, replica, dbAge, ahead, watch, sight, orphan, write, sink, past>>

GiveUp(p) == \* request or answer lost, or the request travels on by itself
    /\ ~Idle(p)
    /\ Ask(p, NoCall)
    /\ \/ UNCHANGED orphan
       \/ /\ ~call[p].answered
          /\ orphan' = [orphan EXCEPT ![p] = Call(call[p].kind, call[p].names)]
    /\ UNCHANGED <<row, replica, dbAge, ahead, held, watch, sight, write, sink, past>>

------------------------------------------------------------------------------
(* What the database does: one statement is one step.                         *)
Free(p, names) ==
    IF Observation THEN Compare => row = names
    ELSE row.node \in {None, p} \/ dbAge >= Wait

NextToken == IF LiftedTokens THEN Max(row.token + 1, row.tl * Lift) ELSE row.token + 1
IsOurs(p, names) == row.node = p /\ row.token = names.token

Matches(p, req) ==
    CASE req.kind = "acquire" -> Free(p, req.names)
      [] req.kind \in {"renew", "resign"} -> IsOurs(p, req.names)
      [] OTHER -> FALSE

After(p, req) == \* the row, where the statement matched
    CASE req.kind = "acquire" ->
            [row EXCEPT !.node = p, !.seq = @ + 1,
                !.token = IF ~TwoStatements /\ row.node = p THEN @ ELSE NextToken]
      [] req.kind = "renew" -> [row EXCEPT !.seq = @ + 1]
      [] req.kind = "resign" -> [row EXCEPT !.node = None, !.seq = @ + 1]

Serve(p, req) ==
    LET hit == Matches(p, req)
        new == IF hit THEN After(p, req) ELSE row
    IN  /\ row' = new
        /\ dbAge' = IF hit THEN 0 ELSE dbAge
        /\ past' = IF new.token = row.token THEN past
                   ELSE [past EXCEPT !.issued = Max(@, new.token),
                                     !.reused = @ \/ new.token <= past.issued]

Answer(p) == \* an answer that would change nothing for its process ends the call here
    LET c == call[p]
        hit == Matches(p, c)
        said == [c EXCEPT !.answered = TRUE, !.ok = hit, !.got = row']
    IN
    /\ ~Idle(p) /\ ~c.answered
    /\ Serve(p, c)
    /\ IF c.kind = "resign" \/ (c.kind = "acquire" /\ ~hit) \/ Late(said, held[p])
       THEN Ask(p, NoCall) ELSE Ask(p, said)
    /\ UNCHANGED <<replica, ahead, held, watch, sight, orphan, write, sink>>

ServeOrphan(p) ==
    /\ orphan[p].kind # "none"
    /\ Serve(p, orphan[p])
    /\ orphan' = [orphan EXCEPT ![p] = NoCall]
    /\ UNCHANGED <<replica, ahead, held, watch, sight, call, write, sink>>

MayPromote == Promotions /\ row.tl < MaxTimeline

Replicate ==
    /\ MayPromote /\ replica # row
    /\ replica' = row
    /\ UNCHANGED <<row, dbAge, ahead, held, watch, sight, call, orphan, write, sink, past>>

Promote == \* what was not replicated is lost; requests on their way reach the new primary
    /\ MayPromote
    /\ row' = [replica EXCEPT !.tl = row.tl + 1]
    /\ replica' = row'
    /\ sight' = [p \in Proc |-> IF SightChecked THEN NoSight ELSE sight[p]]
    /\ UNCHANGED <<dbAge, ahead, held, watch, call, orphan, write, sink, past>>

------------------------------------------------------------------------------
(* What a process makes of an answer.                                         *)
T0Age(c) == IF Deadline /\ FromSending THEN c.age ELSE 0

Believes(p, term) == \* a stretch of belief that begins is noted
    /\ held' = [held EXCEPT ![p] = term]
    /\ past' = IF Valid(p) \/ ~Holding(term) THEN past
               ELSE [past EXCEPT !.begun = Max(@, term.token),
                                 !.reused = @ \/ term.token <= past.begun]

Noted(p, c) == \* the observation
    IF watch[p].on /\ watch[p].row = c.got THEN watch[p]
    ELSE [on |-> TRUE, row |-> c.got, age |-> 0]

Sighted(p, c) == \* the first answer from this timeline; on the first one nobody asks for it
    IF sight[p] = NoSight /\ c.got.tl = row.tl /\ row.tl > 0 THEN 0 ELSE sight[p]

Acquired(p, c) ==
    LET term == [token |-> c.got.token, age |-> T0Age(c)]
    IN  IF c.ok /\ Holding(term) THEN Believes(p, term) ELSE UNCHANGED <<held, past>>

Renewed(p, c) ==
    IF held[p].token # c.names.token THEN UNCHANGED <<held, past>>
    ELSE IF ~c.ok THEN Believes(p, NoTerm)
    ELSE Believes(p, [held[p] EXCEPT !.age = Min(@, T0Age(c))])

Receive(p) ==
    /\ ~Idle(p) /\ call[p].answered
    /\ Ask(p, NoCall)
    /\ watch' = CASE call[p].kind = "observe" -> [watch EXCEPT ![p] = Noted(p, call[p])]
                  [] call[p].kind = "acquire" -> [watch EXCEPT ![p] = NoWatch]
                  [] OTHER -> watch
    /\ sight' = IF call[p].kind = "observe" THEN [sight EXCEPT ![p] = Sighted(p, call[p])] ELSE sight
    /\ CASE call[p].kind = "acquire" -> Acquired(p, call[p])
         [] call[p].kind = "renew" -> Renewed(p, call[p])
         [] OTHER -> UNCHANGED <<held, past>>
    /\ UNCHANGED <<row, replica, dbAge, ahead, orphan, write, sink>>

------------------------------------------------------------------------------
(* The sink: an outside system. A write may be paused between valid() and it. *)
Write(p) ==
    /\ Writes /\ Valid(p) /\ write[p] = 0
    /\ write' = [write EXCEPT ![p] = held[p].token]
    /\ UNCHANGED <<row, replica, dbAge, ahead, held, watch, sight, call, orphan, sink, past>>

Land(p) ==
    /\ write[p] # 0
    /\ write' = [write EXCEPT ![p] = 0]
    /\ sink' = IF Fenced /\ write[p] < sink.max THEN sink
               ELSE [max |-> Max(sink.max, write[p]), last |-> write[p]]
    /\ UNCHANGED <<row, replica, dbAge, ahead, held, watch, sight, call, orphan, past>>

------------------------------------------------------------------------------
Next ==
    \/ ClockStep \/ Replicate \/ Promote
    \/ IF Drift = 0 THEN Tick(Proc) ELSE \E p \in Proc : Tick({p})
    \/ \E p \in Proc :
        \/ Observe(p) \/ Acquire(p) \/ Renew(p) \/ Resign(p) \/ GiveUp(p)
        \/ Answer(p) \/ ServeOrphan(p) \/ Receive(p) \/ Write(p) \/ Land(p)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* The promises.                                                              *)
OneBeliever == \A p, q \in Proc : p # q => ~(Valid(p) /\ Valid(q))

\* No token is issued twice, and each stretch of belief has one that is higher than all before.
TokenUnique == ~past.reused

FencedSink == sink.last = sink.max

\* Shown false on purpose: that the search goes where the danger is. The row was written twice, by
\* two acquisitions: a takeover after the wait. The sink has accepted a write of the new term, and
\* one of the old term is still on its way.
NeverNear == \A p, q \in Proc :
    ~(p # q /\ Valid(p) /\ row.seq = 2 /\ row.token = 2 /\ sink.last = 2 /\ write[q] = 1)

------------------------------------------------------------------------------
(* The search. `seq` and what was seen matter only by equality with the row,  *)
(* so the view keeps that and no number: renewals are unbounded.              *)
Bound == row.token % Lift <= MaxTerms
Symmetry == Permutations(Proc)

Seen(r) == <<r.node, r = row, r.token \div Lift = r.tl>>

Spent(p, req) == \* it can match no row any more
    /\ Observation /\ Compare /\ ~Matches(p, req)
    /\ (req.kind \in {"renew", "resign"} /\ MayPromote) =>
            ~(replica.node = p /\ replica.token = req.names.token)

SeenWatch(w) == \* of a row that is no more: as good as none, what it could send is refused
    IF ~w.on \/ (Observation /\ Compare /\ w.row # row) THEN <<>> ELSE <<w.age, Seen(w.row)>>

SeenCall(p, c) ==
    CASE c.kind = "none" -> <<>>
      [] c.kind = "observe" -> <<c.kind, Seen(c.got)>>
      [] c.answered -> <<c.kind, c.age, c.ok, c.names.token, IF c.ok THEN c.got.token ELSE 0>>
      [] c.kind = "acquire" /\ Spent(p, c) -> <<c.kind, c.age>>
      [] c.kind = "acquire" -> <<c.kind, c.age, Seen(c.names)>>
      [] OTHER -> <<c.kind, c.age, c.names.token>>

View ==
    <<row.node, row.token, row.tl,
      IF MayPromote THEN <<replica.node, replica.token>> ELSE <<>>, dbAge, ahead, held, write, sink,
      past,
      [p \in Proc |-> IF SightChecked /\ row.token \div Lift = row.tl THEN NoSight ELSE sight[p]],
      [p \in Proc |-> SeenWatch(watch[p])],
      [p \in Proc |-> SeenCall(p, call[p])],
      [p \in Proc |-> IF Spent(p, orphan[p]) THEN <<>> ELSE SeenCall(p, orphan[p])]>>
=============================================================================
