//! Completion scripts for shells, made from the declarations of the options.
//!
//! `run` and `offload` have mpiexec's syntax, which clap's own generator does not know: long options with one dash, pairs
//! such as `-env NAME VALUE`, programs separated by `:`, and a program's own arguments behind its name.

use std::fmt::Write;

use clap::builder::ValueHint;
use clap::{Arg, ArgAction, Command, ValueEnum};

use crate::value;

/// Template of the script for bash. `@NAME@` are the places of the tables.
const BASH: &str = include_str!("completions.bash");

/// Values of options that take more than a list of words, by the identifiers of the options in clap. A word that ends in `:` or
/// `=` goes on.
const WORDS: [(&str, &str); 11] = [
    ("bind_to", "none hwthread core l1 l2 l3 numa socket machine rr user:"),
    ("bootstrap", "ssh srun qrsh local exec:"),
    ("fence", "collect lazy auto"),
    ("map_by", "slot node block hwthread core l1 l2 l3 numa socket machine ppr:"),
    ("membind", "none local bind: interleave interleave:"),
    ("shared_memory", "all segments none"),
    ("signal", "HUP INT QUIT TERM USR1 USR2 TSTP CONT KILL"),
    ("stdin", "all none tools"),
    ("topology", "complete cart: hypercube kautz file:"),
    ("usize", "SYSTEM INFINITE"),
    ("memory_alloc_kinds", "system cuda rocm ze"),
];

/// A shell with completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Options of `hydrant completions`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct CompletionsArgs {
    /// Shell whose script is printed
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

/// Value of an option, as a shell completes it.
enum Value {
    None,
    /// One after `=`, or none.
    Inline,
    /// A word that cannot be completed.
    Word,
    /// A name and a value in two words, or `NAME=VALUE`.
    Pair,
    File,
    Choice(Vec<String>),
}

struct Opt {
    /// Names without dashes.
    names: Vec<String>,
    placeholder: String,
    help: String,
    value: Value,
}

struct Verb {
    name: String,
    help: String,
    /// Whether it starts a job and has mpiexec's syntax.
    is_job: bool,
    options: Vec<Opt>,
    /// Values of its argument, if they are known.
    choices: Vec<String>,
    /// Whether its argument is a running job.
    takes_job: bool,
}

/// Returns the script that completes `hydrant` and `hydrant-mpiexec`. Hidden commands and options are left out.
pub(super) fn script(shell: Shell, mut hydrant: Command) -> String {
    hydrant.build();
    let mut verbs: Vec<Verb> =
        hydrant.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Verb::of).collect();
    let names: Vec<String> = verbs.iter().map(|verb| verb.name.clone()).collect();
    for verb in verbs.iter_mut().filter(|verb| matches!(verb.name.as_str(), "help" | "man")) {
        verb.choices = names.iter().filter(|name| *name != "help").cloned().collect();
    }
    match shell {
        Shell::Bash => bash(&verbs),
        Shell::Zsh => zsh(&verbs),
        Shell::Fish => fish(&verbs),
    }
}

impl Verb {
    fn of(command: &Command) -> Verb {
        let options = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        let choices = command.get_positionals().filter_map(choices);
        Verb {
            name: command.get_name().to_owned(),
            help: command.get_about().map(ToString::to_string).unwrap_or_default(),
            is_job: matches!(command.get_name(), "run" | "offload" | "up"),
            options: options.map(Opt::of).collect(),
            choices: choices.flatten().collect(),
            takes_job: command.get_positionals().any(|arg| placeholder(arg) == Some("JOB")),
        }
    }

    /// Names of the options for which `select` holds, each between blanks.
    fn names(&self, select: impl Fn(&Opt) -> bool) -> String {
        let names = self.options.iter().filter(|option| select(option)).flat_map(|option| &option.names);
        names.fold(String::from(" "), |list, name| list + name + " ")
    }
}

impl Opt {
    fn of(arg: &Arg) -> Opt {
        let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        let names =
            shorts.into_iter().map(String::from).chain(longs.into_iter().map(str::to_owned)).collect();
        Opt {
            names,
            placeholder: placeholder(arg).unwrap_or_default().to_owned(),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            value: value(arg),
        }
    }

    /// The option's spellings. A job's long options have one dash or two.
    fn spellings(&self, is_job: bool) -> impl Iterator<Item = String> {
        self.names.iter().flat_map(move |name| {
            let one_dash = (is_job || name.len() == 1).then(|| format!("-{name}"));
            let two_dashes = (name.len() > 1).then(|| format!("--{name}"));
            one_dash.into_iter().chain(two_dashes)
        })
    }
}

fn value(arg: &Arg) -> Value {
    let takes_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    if !takes_values {
        return Value::None;
    }
    if arg.get_num_args().is_some_and(|number| number.min_values() == 0) {
        return Value::Inline;
    }
    if let Some(choices) = choices(arg) {
        return Value::Choice(choices);
    }
    let has_path =
        matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
    match placeholder(arg) {
        Some("NAME VALUE") => Value::Pair,
        Some("FILE" | "DIR" | "PATH") => Value::File,
        _ if has_path => Value::File,
        _ => Value::Word,
    }
}

fn placeholder(arg: &Arg) -> Option<&str> {
    arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str())
}

/// The possible values of an argument: those that clap knows, those of [`WORDS`], or those that the placeholder lists, as
/// `slot|node`.
fn choices(arg: &Arg) -> Option<Vec<String>> {
    let id = arg.get_id().as_str();
    if let Some((_, words)) = WORDS.iter().find(|(of, _)| *of == id) {
        return Some(words.split(' ').map(str::to_owned).collect());
    }
    if id == "limit" {
        return Some(value::limits().map(|limit| format!("{}=", limit.name())).collect());
    }
    let known: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !known.is_empty() && arg.get_action().takes_values() {
        return Some(known);
    }
    let placeholder = placeholder(arg)?;
    let is_literal = |word: &str| !word.is_empty() && !word.contains(|c: char| c.is_ascii_uppercase());
    let words: Vec<String> = placeholder.split('|').map(str::to_owned).collect();
    (words.len() > 1 && words.iter().all(|word| is_literal(word))).then_some(words)
}

fn bash(verbs: &[Verb]) -> String {
    let mut tables = String::new();
    let mut values = String::new();
    for verb in verbs {
        let Verb { name, options, choices, .. } = verb;
        let is_short = |name: &&String| name.len() == 1;
        let names = || options.iter().flat_map(|option| &option.names);
        let dashed = |dashes: &str, list: Vec<&String>| {
            list.iter().map(|name| format!("{dashes}{name}")).collect::<Vec<_>>().join(" ")
        };
        let short = dashed("-", names().filter(is_short).collect());
        let long = dashed("--", names().filter(|name| !is_short(name)).collect());
        let valued =
            verb.names(|option| matches!(option.value, Value::Word | Value::File | Value::Choice(_)));
        let pairs = verb.names(|option| matches!(option.value, Value::Pair));
        let files = verb.names(|option| matches!(option.value, Value::File | Value::Inline));
        let _ = write!(
            tables,
            "        {name})\n            short='{short}'\n            long='{long}'\n            \
             valued='{valued}'\n            pairs='{pairs}'\n            files='{files}'\n            \
             choices='{}'\n            jobs='{}'\n            ;;\n",
            choices.join(" "),
            if verb.takes_job { "yes" } else { "" },
        );
        for option in options {
            let Value::Choice(choices) = &option.value else { continue };
            let patterns: Vec<String> =
                option.names.iter().map(|option| format!("'{name} {option}'")).collect();
            let _ =
                writeln!(values, "            {}) choices='{}' ;;", patterns.join(" | "), choices.join(" "));
        }
    }
    let all: Vec<&str> = verbs.iter().map(|verb| verb.name.as_str()).collect();
    let jobs: Vec<&str> = verbs.iter().filter(|verb| verb.is_job).map(|verb| verb.name.as_str()).collect();
    BASH.replace("@TABLES@\n", &tables)
        .replace("@VALUES@\n", &values)
        .replace("@COMMANDS@", &all.join(" "))
        .replace("@CASES@", &all.join(" | "))
        .replace("@JOBS@", &jobs.join(" | "))
}

fn zsh(verbs: &[Verb]) -> String {
    let mut text = String::from(
        "#compdef hydrant hydrant-mpiexec\n# Completion of zsh, made by 'hydrant completions zsh'.\n\n\
         _hydrant_jobs() {\n    local -a jobs\n    jobs=(${(f)\"$(_call_program jobs hydrant ps 2>/dev/null)\"})\n    \
         jobs=(${${jobs[2,-1]## #}%% *})\n    compadd -a jobs\n}\n\n",
    );
    for verb in verbs {
        let _ = write!(text, "_hydrant_{}() {{\n    _arguments \\\n", verb.name.replace('-', "_"));
        for option in &verb.options {
            let suffix = match option.value {
                Value::None | Value::Pair => "",
                Value::Inline => "=-",
                _ => "=",
            };
            let message = zsh_text(&option.placeholder);
            let value = match &option.value {
                Value::None => String::new(),
                Value::Inline => format!("::{message}:_files"),
                Value::Word => format!(":{message}: "),
                Value::Pair => ":name: :value: ".to_owned(),
                Value::File => format!(":{message}:_files"),
                Value::Choice(choices) => format!(":{message}:{}", zsh_choices(choices)),
            };
            let help = zsh_text(&option.help);
            for spelling in option.spellings(verb.is_job) {
                // A one-letter option has its value in the next word.
                let suffix = if spelling.len() == 2 { "" } else { suffix };
                let _ = writeln!(text, "        '*{spelling}{suffix}[{help}]{value}' \\");
            }
        }
        let rest = match (verb.is_job, verb.choices.is_empty()) {
            (true, _) => "'(-)1:program:_command_names -e' '*::arguments:_normal'".to_owned(),
            (false, true) if verb.takes_job => "'*:job:_hydrant_jobs'".to_owned(),
            (false, true) => "'*:file:_files'".to_owned(),
            (false, false) => format!("'1:value:({})'", verb.choices.join(" ")),
        };
        let _ = write!(text, "        {rest}\n}}\n\n");
    }
    let _ = write!(
        text,
        "_hydrant() {{\n    local -a commands\n    commands=(\n{}    )\n    \
         if [[ $service == hydrant && $CURRENT == 2 && $words[2] != -* ]]; then\n        \
         _describe command commands\n        _command_names -e\n        return\n    fi\n    \
         local command=run\n    \
         if [[ $service == hydrant && -n ${{commands[(r)$words[2]:*]}} ]]; then\n        \
         command=$words[2]\n        shift words\n        (( CURRENT-- ))\n    fi\n    \
         _hydrant_${{command//-/_}}\n}}\n\n_hydrant \"$@\"\n",
        verbs
            .iter()
            .map(|verb| format!("        '{}:{}'\n", verb.name, zsh_text(&verb.help)))
            .collect::<String>()
    );
    text
}

/// The words of an option. One that ends in `:` or `=` gets no blank behind it.
fn zsh_choices(choices: &[String]) -> String {
    let goes_on = |word: &&String| word.ends_with([':', '=']);
    if !choices.iter().any(|word| goes_on(&word)) {
        return format!("({})", choices.join(" "));
    }
    let words =
        |parts: Vec<&String>| parts.into_iter().map(|part| zsh_text(part)).collect::<Vec<_>>().join(" ");
    let whole = words(choices.iter().filter(|word| !goes_on(word)).collect());
    let parts = words(choices.iter().filter(goes_on).collect());
    format!("{{compadd {whole}; compadd -S \"\" {parts}}}")
}

/// Escapes a text in single quotes of a specification.
fn zsh_text(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('[', r"\[").replace(']', r"\]").replace(':', r"\:");
    escaped.replace('\'', r"'\''")
}

fn fish(verbs: &[Verb]) -> String {
    let mut text = String::from("# Completion of fish, made by 'hydrant completions fish'.\n");
    let quoted = |text: &str| format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"));
    for verb in verbs {
        let _ = writeln!(
            text,
            "complete -c hydrant -n __fish_use_subcommand -a {} -d {}",
            verb.name,
            quoted(&verb.help)
        );
    }
    for verb in verbs {
        let condition = format!("-c hydrant -n '__fish_seen_subcommand_from {}'", verb.name);
        let link = (verb.name == "run").then(|| "-c hydrant-mpiexec".to_owned());
        for place in std::iter::once(condition).chain(link) {
            for option in &verb.options {
                let mut line = format!("complete {place}");
                for name in &option.names {
                    match (name.len(), verb.is_job) {
                        (1, _) => line += &format!(" -s {name}"),
                        (_, true) => line += &format!(" -l {name} -o {name}"),
                        (_, false) => line += &format!(" -l {name}"),
                    }
                }
                line += &match &option.value {
                    Value::None | Value::Inline => String::new(),
                    Value::Word | Value::Pair => " -x".to_owned(),
                    Value::File => " -r".to_owned(),
                    Value::Choice(choices) => format!(" -x -a {}", quoted(&choices.join(" "))),
                };
                let _ = writeln!(text, "{line} -d {}", quoted(&option.help));
            }
            if verb.takes_job {
                let ids = r"(hydrant ps 2>/dev/null | string replace -rf '^ *([0-9]+) .*' '$1')";
                let _ = writeln!(text, "complete {place} -f -a {}", quoted(ids));
            }
            if !verb.choices.is_empty() {
                let _ = writeln!(text, "complete {place} -f -a {}", quoted(&verb.choices.join(" ")));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::{Command as Process, Stdio};

    use super::*;
    use crate::cli::commands;

    fn all(shell: Shell) -> String {
        script(shell, commands::hydrant())
    }

    /// The completions of `line` in bash. The cursor is at its end. The words are split as bash splits them.
    fn completed(line: &str) -> Vec<String> {
        let script = format!(
            "{}\ncompopt() {{ echo \"compopt $*\"; }}\nCOMP_LINE=$1 COMP_POINT=${{#1}}\n_hydrant\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            all(Shell::Bash)
        );
        let bash = Process::new("bash").args(["--norc", "-c", &script, "bash", line]).output();
        let bash = bash.expect("bash can be started");
        let errors = String::from_utf8_lossy(&bash.stderr);
        assert!(bash.status.success() && errors.is_empty(), "{line}: {errors}");
        let text = String::from_utf8(bash.stdout).expect("names are UTF-8");
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_commands_options_and_values() {
        assert_eq!(completed("hydrant repl"), ["replay", "replace"]);
        assert_eq!(completed("hydrant run --gen"), ["--genv", "--genvlist", "--genvnone", "--genvall"]);
        // A job's long options have one dash, too.
        assert_eq!(completed("hydrant run -genvl"), ["-genvlist"]);
        assert_eq!(completed("hydrant -n 2 -genvl"), ["-genvlist"]);
        assert_eq!(completed("hydrant-mpiexec -genvl"), ["-genvlist"]);
        assert_eq!(completed("hydrant serve -mana"), [""; 0]);
        assert_eq!(completed("hydrant serve --mana"), ["--manage"]);
        assert_eq!(completed("hydrant run --pty a"), ["auto", "always"]);
        assert_eq!(completed("hydrant run --pty=ne"), ["never"]);
        assert_eq!(completed("hydrant run -rank-by "), ["slot", "node"]);
        assert_eq!(completed("hydrant completions z"), ["zsh"]);
        assert_eq!(completed("hydrant help at"), ["attach"]);
        assert_eq!(completed("hydrant man re"), ["replay", "replace"]);
        assert_eq!(completed("hydrant run -bind-to so"), ["socket"]);
        assert_eq!(completed("hydrant run --fence=l"), ["lazy"]);
        assert_eq!(completed("hydrant run --limit key"), ["compopt -o nospace", "keys="]);
        assert_eq!(completed("hydrant kill -s US"), ["USR1", "USR2"]);
    }

    #[test]
    fn bash_completes_running_jobs() {
        let folder = std::env::temp_dir().join(format!("hydrant-completions-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let hydrant = folder.join("hydrant");
        let listed = "#!/bin/sh\n[ \"$*\" = ps ] && printf '  PID  TIME  PROGRAM\\n 4711  1 s  a\\n47999  2 s  b\\n'\n";
        std::fs::write(&hydrant, listed).expect("a temporary file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&hydrant, mode).expect("it is a file of this process");
        let of = |line: &str| completed(&format!("{} {line}", hydrant.display()));
        for command in ["status", "kill", "attach", "debug --rank 0", "replace --built-in"] {
            assert_eq!(of(&format!("{command} ")), ["4711", "47999"], "{command}");
            assert_eq!(of(&format!("{command} 471")), ["4711"], "{command}");
        }
        assert_eq!(of("kill -s USR1 4711 479"), ["47999"]);
        assert_eq!(of("debug --rank 0 4711 -- g"), [""; 0]);
        std::fs::remove_dir_all(&folder).expect("it is a folder of this process");
    }

    /// Words that the completions offer are valid, but for those that go on.
    #[test]
    fn offered_words_are_values() {
        for (id, words) in WORDS {
            let command = commands::hydrant();
            let has_option = |verb: &&Command| verb.get_arguments().any(|arg| arg.get_id() == id);
            let verb = command.get_subcommands().find(has_option).expect("an option has this identifier");
            let option = verb.get_arguments().find(|arg| arg.get_id() == id).expect("it was found");
            let long = option.get_long().expect("it has a long name").to_owned();
            for word in words.split(' ').filter(|word| !word.ends_with(':')) {
                let bare = Command::new("hydrant").no_binary_name(true).arg(option.clone().required(false));
                let parsed = bare.try_get_matches_from([format!("--{long}={word}")]);
                assert!(parsed.is_ok(), "--{long}={word}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn bash_leaves_a_programs_arguments_to_file_names() {
        for line in ["hydrant run ./a.out --gen", "hydrant run -n 2 ./a.out -", "hydrant run -- -a --gen"] {
            assert_eq!(completed(line), [""; 0], "{line}");
        }
        // Values are no programs, and options follow a colon.
        for line in [
            "hydrant run -hosts a:4,b -n 2 --pse",
            "hydrant run -env A 1 --pse",
            "hydrant run -env A=1 --pse",
        ] {
            assert_eq!(completed(line), ["--pset"], "{line}");
        }
        assert_eq!(completed("hydrant run ./a --gen : --pse"), ["--pset"]);
        // A number has no completion, not even file names.
        assert_eq!(completed("hydrant run -n "), ["compopt +o default"]);
        assert_eq!(completed("hydrant run --record jo"), [""; 0]);
    }

    #[test]
    fn hidden_names_are_left_out() {
        // The script of bash has no help texts, so every word of it is a name.
        let script = all(Shell::Bash);
        for hidden in ["daemon", "reach", "nameserver", "print-all-exitcodes"] {
            let is_name = |word: &str| word.trim_start_matches('-') == hidden;
            let found = script.split(|c: char| !c.is_alphanumeric() && c != '-').any(is_name);
            assert!(!found, "{hidden}");
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(all(shell).contains("machinefile"), "{shell:?}: visible aliases are completed");
        }
    }

    /// Shells that are installed read their script without an error.
    #[test]
    fn shells_read_their_scripts() {
        for (shell, program) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
            let process = Process::new(program).args(["-n", "/dev/stdin"]).stdin(Stdio::piped()).spawn();
            let mut process = match process {
                Ok(process) => process,
                Err(error) => {
                    assert_ne!(shell, Shell::Bash, "bash: {error}");
                    continue;
                }
            };
            let mut input = process.stdin.take().expect("it is a pipe");
            std::io::Write::write_all(&mut input, all(shell).as_bytes()).expect("the shell reads its input");
            drop(input);
            assert!(process.wait().expect("it was started").success(), "{program}");
        }
    }
}
