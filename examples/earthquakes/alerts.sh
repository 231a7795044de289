#!/bin/sh
# A process a message: the record on the standard input, exit 0 for done. Appends the strong ones, of magnitude 4.5 or
# more, to alerts.tsv.
record=$(cat)
magnitude=${record#*'"magnitude":'}
magnitude=${magnitude# }
magnitude=${magnitude%%,*}
case $magnitude in
4.[5-9]* | [5-9] | [5-9].* | [1-9][0-9]*)
    place=${record#*'"place":'}
    place=${place#*'"'}
    printf '%s\t%s\t%s\n' "$POSTROOM_ID" "$magnitude" "${place%%'"'*}" >>alerts.tsv ;;
esac
