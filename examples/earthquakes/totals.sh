#!/bin/sh
# Mode "lines": one message a line in, one answer a line out. Appends `message id, region` to totals.tsv; a repeat is
# told by its id.
while IFS= read -r line; do
    id=${line#'{"id":"'}
    id=${id%%'"'*}
    magnitude=${line#*'"magnitude":'}
    magnitude=${magnitude# }
    magnitude=${magnitude%%,*}
    place=${line#*'"place":'}
    place=${place#*'"'}
    place=${place%%'"'*}
    case $magnitude in
    -*) # The rule to repair: remove these two lines, then `postroom failed retry --all`.
        printf '{"id":"%s","fail":"the magnitude %s is negative"}\n' "$id" "$magnitude" ;;
    *)
        printf '%s\t%s\n' "$id" "${place##*, }" >>totals.tsv
        printf '{"id":"%s","ok":true}\n' "$id" ;;
    esac
done
