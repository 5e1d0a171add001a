# Completion of bash, made by 'hydrant completions bash'.

_hydrant() {
    # The words of the line up to the cursor. Those of COMP_WORDS are cut at ':' and '='.
    local line=${COMP_LINE:0:COMP_POINT} words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    local last=$((${#words[@]} - 1)) i=1 command=run
    local cur=${words[last]} name='' word id short long valued pairs files choices jobs
    COMPREPLY=()

    if [[ ${words[0]##*/} == hydrant ]]; then
        if ((last == 1)) && [[ $cur != -* ]]; then
            COMPREPLY=($(compgen -W '@COMMANDS@' -- "$cur"))
            return
        fi
        case ${words[1]} in
            @CASES@)
                command=${words[1]}
                i=2
                ;;
        esac
    fi
    case $command in
@TABLES@
    esac

    # Finds the option whose value is completed, and passes over the programs before the cursor.
    while ((i < last)); do
        word=${words[i++]}
        if [[ $word == -?* && $word != -- && $word != *=* ]]; then
            name=${word#-}
            name=${name#-}
            if [[ $pairs == *" $name "* ]]; then
                [[ ${words[i]} == *=* ]] && ((i++)) || ((i += 2))
            elif [[ $valued == *" $name "* ]]; then
                ((i++))
            fi
            ((i > last)) && break
            name=''
        elif [[ $word != -?* || $word == -- ]]; then
            case $command in
                @JOBS@)
                    while ((i < last)) && [[ ${words[i]} != : ]]; do ((i++)); done
                    ((i < last)) || return
                    ((i++))
                    ;;
            esac
        fi
    done
    if [[ -z $name && $cur == -*=* ]]; then
        name=${cur%%=*}
        name=${name#-}
        name=${name#-}
        cur=${cur#*=}
    fi

    if [[ -n $name ]]; then
        [[ $files == *" $name "* ]] && return
        choices=''
        case "$command $name" in
@VALUES@
        esac
        COMPREPLY=($(compgen -W "$choices" -- "$cur"))
        [[ ${COMPREPLY[0]} == *[:=] ]] && ((${#COMPREPLY[@]} == 1)) && compopt -o nospace
        [[ -n $choices ]] || compopt +o default
    elif [[ $cur == - || $cur == --* ]]; then
        COMPREPLY=($(compgen -W "$short $long" -- "$cur"))
    elif [[ $cur == -* ]]; then
        case $command in
            @JOBS@) COMPREPLY=($(compgen -W "$short ${long//--/-}" -- "$cur")) ;;
            *) COMPREPLY=($(compgen -W "$short" -- "$cur")) ;;
        esac
    elif [[ -n $choices ]]; then
        COMPREPLY=($(compgen -W "$choices" -- "$cur"))
    elif [[ -n $jobs && " ${words[*]:0:last} " != *' -- '* ]]; then
        while read -r id _; do
            [[ $id == [0-9]* && $id == "$cur"* ]] && COMPREPLY+=("$id")
        done < <("${words[0]}" ps 2>/dev/null)
    elif [[ -n $cur && $cur != */* ]]; then
        case $command in
            @JOBS@) COMPREPLY=($(compgen -A command -- "$cur")) ;;
        esac
    fi
}

complete -o default -F _hydrant hydrant hydrant-mpiexec
