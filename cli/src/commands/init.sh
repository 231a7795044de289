#!/bin/sh
# A handler: the body is on the standard input, the rest in POSTROOM_*.
# Exit 0: done. 65: fail, no retry can help. Anything else: retry by policy.
# What it writes goes to the log; the end of its stderr is the error's text.
body=$(cat)
echo "message $POSTROOM_ID of type $POSTROOM_TYPE, attempt $POSTROOM_ATTEMPT: $body"
