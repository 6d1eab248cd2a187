-------------------------------- MODULE Claim --------------------------------
(* Claims in flight against the death of their node, and against a node that  *)
(* never heard of their outcome (sql/job/claim.sql, sql/node/bury.sql,        *)
(* new_epoch.sql, sql/job/rescue.sql, give_back_unknown.sql), under READ      *)
(* COMMITTED: a statement sees what was committed when it began, and waits    *)
(* for row locks. A request may reach the database long after its process     *)
(* died, so claims go on whatever becomes of the process.                     *)
EXTENDS Naturals, TLC

CONSTANTS Node, Job, None,
    MaxEpoch,   \* claims of a node with unknown outcome: the bound of the search
    Without     \* the protections that this build lacks

ASSUME Without \subseteq
    { "key share",          \* else a claim only reads its node row
      "later statement",    \* else the jobs are freed by the statement that deletes the node
      "epoch" }             \* else a claim with unknown outcome is not outdated

KeyShare == "key share" \notin Without
LaterStatement == "later statement" \notin Without
Epoch == "epoch" \notin Without

VARIABLES
    row,    \* a node's row: [here, epoch]
    death,  \* "none", "open", "settled": once settled nobody looks for its jobs
    bury,   \* the DELETE of a node: [phase, sees]; sees: its jobs by the statement's snapshot
    claim,  \* a node's claim: [phase, epoch, job, heard]; heard: its node waits for the answer
    job,    \* the committed owner of a job
    known,  \* the jobs that a node knows it has
    doubt   \* a node's claim went unanswered: "no", "unknown", "outdated"

vars == <<row, death, bury, claim, job, known, doubt>>

NoClaim == [phase |-> "none", epoch |-> 0, job |-> None, heard |-> FALSE]
NoBury == [phase |-> "none", sees |-> {}]

Init ==
    /\ row = [n \in Node |-> [here |-> TRUE, epoch |-> 0]]
    /\ death = [n \in Node |-> "none"]
    /\ bury = [n \in Node |-> NoBury]
    /\ claim = [n \in Node |-> NoClaim]
    /\ job = [j \in Job |-> None]
    /\ known = [n \in Node |-> {}]
    /\ doubt = [n \in Node |-> "no"]

Of(n) == {j \in Job : job[j] = n}
Freed(jobs) == [j \in Job |-> IF j \in jobs THEN None ELSE job[j]]
Picked(j) == \E n \in Node : claim[n].phase = "picked" /\ claim[n].job = j
SharesRow(n) == KeyShare /\ claim[n].phase \in {"locked", "picked"}

------------------------------------------------------------------------------
(* The claim.                                                                 *)
Send(n) ==
    /\ claim[n].phase = "none" /\ doubt[n] = "no" /\ row[n].here
    /\ claim' = [claim EXCEPT ![n] =
            [phase |-> "sent", epoch |-> row[n].epoch, job |-> None, heard |-> TRUE]]
    /\ UNCHANGED <<row, death, bury, job, known, doubt>>

Begin(n) == \* the snapshot: does it show a node row of this epoch?
    /\ claim[n].phase = "sent"
    /\ claim' = [claim EXCEPT ![n] =
            IF row[n].here /\ (Epoch => @.epoch = row[n].epoch)
            THEN [@ EXCEPT !.phase = "begun"] ELSE NoClaim]
    /\ UNCHANGED <<row, death, bury, job, known, doubt>>

Lock(n) == \* FOR KEY SHARE: waits for a DELETE, then looks at the row again
    /\ claim[n].phase = "begun"
    /\ KeyShare => bury[n].phase # "deleted"
    /\ claim' = [claim EXCEPT ![n] =
            IF KeyShare => row[n].here /\ (Epoch => @.epoch = row[n].epoch)
            THEN [@ EXCEPT !.phase = "locked"] ELSE NoClaim]
    /\ UNCHANGED <<row, death, bury, job, known, doubt>>

Pick(n, j) == \* FOR UPDATE SKIP LOCKED
    /\ claim[n].phase = "locked" /\ job[j] = None /\ ~Picked(j)
    /\ claim' = [claim EXCEPT ![n].phase = "picked", ![n].job = j]
    /\ UNCHANGED <<row, death, bury, job, known, doubt>>

Commit(n) ==
    /\ claim[n].phase = "picked"
    /\ job' = [job EXCEPT ![claim[n].job] = n]
    /\ known' = IF claim[n].heard THEN [known EXCEPT ![n] = @ \cup {claim[n].job}] ELSE known
    /\ claim' = [claim EXCEPT ![n] = NoClaim]
    /\ UNCHANGED <<row, death, bury, doubt>>

Fail(n) == \* nothing to pick, a killed backend, a lost request
    /\ claim[n].phase # "none"
    /\ claim' = [claim EXCEPT ![n] = NoClaim]
    /\ UNCHANGED <<row, death, bury, job, known, doubt>>

Finish(j) ==
    \E n \in Node :
        /\ job[j] = n /\ j \in known[n] /\ row[n].here
        /\ job' = [job EXCEPT ![j] = None]
        /\ known' = [known EXCEPT ![n] = @ \ {j}]
        /\ UNCHANGED <<row, death, bury, claim, doubt>>

------------------------------------------------------------------------------
(* A claim without an answer.                                                 *)
GiveUp(n) == \* from any moment after the sending; a lost answer is given up before the commit
    /\ claim[n].phase # "none" /\ doubt[n] = "no" /\ row[n].epoch < MaxEpoch
    /\ doubt' = [doubt EXCEPT ![n] = "unknown"]
    /\ claim' = [claim EXCEPT ![n].heard = FALSE]
    /\ UNCHANGED <<row, death, bury, job, known>>

NewEpoch(n) == \* FOR UPDATE: waits for claims in flight
    /\ doubt[n] = "unknown" /\ row[n].here /\ bury[n].phase # "deleted"
    /\ Epoch => ~SharesRow(n)
    /\ row' = [row EXCEPT ![n].epoch = @ + 1]
    /\ doubt' = [doubt EXCEPT ![n] = "outdated"]
    /\ UNCHANGED <<death, bury, claim, job, known>>

GiveBack(n) ==
    /\ doubt[n] = "outdated" /\ row[n].here
    /\ job' = Freed(Of(n) \ known[n])
    /\ doubt' = [doubt EXCEPT ![n] = "no"]
    /\ UNCHANGED <<row, death, bury, claim, known>>

------------------------------------------------------------------------------
(* The death.                                                                 *)
Bury(n) ==
    /\ bury[n].phase = "none" /\ row[n].here
    /\ bury' = [bury EXCEPT ![n] = [phase |-> "begun", sees |-> Of(n)]]
    /\ UNCHANGED <<row, death, claim, job, known, doubt>>

Delete(n) == \* waits for claims in flight, which hold the row
    /\ bury[n].phase = "begun" /\ ~SharesRow(n)
    /\ bury' = [bury EXCEPT ![n].phase = "deleted"]
    /\ UNCHANGED <<row, death, claim, job, known, doubt>>

Die(n) == \* the DELETE commits
    /\ bury[n].phase = "deleted"
    /\ row' = [row EXCEPT ![n].here = FALSE]
    /\ bury' = [bury EXCEPT ![n] = NoBury]
    /\ known' = [known EXCEPT ![n] = {}]
    /\ IF LaterStatement
       THEN death' = [death EXCEPT ![n] = "open"] /\ UNCHANGED job
       ELSE /\ death' = [death EXCEPT ![n] = "settled"]
            /\ job' = Freed(bury[n].sees \cap Of(n))
    /\ UNCHANGED <<claim, doubt>>

Rescue(n) ==
    /\ death[n] = "open" /\ Of(n) # {}
    /\ job' = Freed(Of(n))
    /\ UNCHANGED <<row, death, bury, claim, known, doubt>>

Settle(n) ==
    /\ death[n] = "open" /\ Of(n) = {}
    /\ death' = [death EXCEPT ![n] = "settled"]
    /\ UNCHANGED <<row, bury, claim, job, known, doubt>>

------------------------------------------------------------------------------
Next ==
    \/ \E j \in Job : Finish(j)
    \/ \E n \in Node :
        \/ Send(n) \/ Begin(n) \/ Lock(n) \/ Commit(n) \/ Fail(n)
        \/ GiveUp(n) \/ NewEpoch(n) \/ GiveBack(n)
        \/ Bury(n) \/ Delete(n) \/ Die(n) \/ Rescue(n) \/ Settle(n)
        \/ \E j \in Job : Pick(n, j)

Fairness == \A n \in Node : WF_vars(Rescue(n)) /\ WF_vars(Settle(n))
Spec == Init /\ [][Next]_vars /\ Fairness
Symmetry == Permutations(Node) \cup Permutations(Job)

(* The promises.                                                              *)
NotStuckOnTheDead == \A n \in Node : death[n] = "settled" => Of(n) = {}
NotStuckOnTheLiving ==
    \A n \in Node : row[n].here /\ doubt[n] = "no" => Of(n) \subseteq known[n]
Rescued == \A n \in Node : (~row[n].here /\ Of(n) # {}) ~> (Of(n) = {})

\* Shown false on purpose: a DELETE meets a claim that holds the row, while another node has a job.
NeverNear ==
    \A n, m \in Node : ~(bury[n].phase = "begun" /\ claim[n].phase = "picked" /\ Of(m) # {} /\ n # m)
=============================================================================
