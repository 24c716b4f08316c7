"""Last: remove what is no longer needed, all of it on hosts that left, and leave receipts of it all."""

from tailtrain.fleet import cleaning, session

if session.anywhere("prune"):
    cleaning.prune(name="Clean: old runs and chunks")
if session.anywhere("clean"):
    cleaning.clean(name="Clean: hosts that left")
if session.anywhere("receipt"):
    cleaning.receipt(name="Receipts")
