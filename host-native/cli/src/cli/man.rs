//! Manual pages, made from the command line's own help. To write those in `man/` and `docs/options.md` again:
//! `HYDRANT_WRITE_MAN=1 cargo test -p hydrant --lib man`.

use clap_mangen::Man;

/// Options of `hydrant man`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct ManArgs {
    /// Command whose page is printed; default: the page of hydrant itself
    #[arg(value_name = "COMMAND")]
    pub(super) command: Option<String>,
}

/// Returns the manual page of a command, or of `hydrant` itself, in the format of man(7).
///
/// # Errors
/// There is no such command. The text names those that there are.
pub(super) fn of(command: Option<&str>, hydrant: clap::Command) -> Result<String, String> {
    let name = command.map_or_else(|| "hydrant".to_owned(), |command| format!("hydrant-{command}"));
    let pages = pages(hydrant);
    let names: Vec<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("hydrant-")).collect();
    let unknown = || {
        format!("unknown command {}; commands with a page: {}", command.unwrap_or_default(), names.join(" "))
    };
    let page = pages.iter().find(|(page, _)| *page == name).ok_or_else(unknown)?;
    Ok(page.1.clone())
}

/// One page for the command and one for each of its verbs.
fn pages(hydrant: clap::Command) -> Vec<(String, String)> {
    let mut command = hydrant.disable_help_subcommand(true);
    command.build();
    let verbs: Vec<_> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let verbs = verbs.into_iter().map(|verb| (format!("hydrant-{}", verb.get_name()), verb));
    std::iter::once(("hydrant".to_owned(), command))
        .chain(verbs)
        .map(|(name, verb)| (name.clone(), page(name, verb)))
        .collect()
}

fn page(name: String, command: clap::Command) -> String {
    let extra = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let verbs = command.has_subcommands();
    let man = Man::new(command)
        .title(name)
        .source(concat!("hydrant ", env!("CARGO_PKG_VERSION")))
        .manual("hydrant");
    let mut page = Vec::new();
    man.render_title(&mut page)
        .and_then(|()| man.render_name_section(&mut page))
        .and_then(|()| man.render_synopsis_section(&mut page))
        .and_then(|()| man.render_description_section(&mut page))
        .and_then(|()| man.render_options_section(&mut page))
        .and_then(|()| if verbs { man.render_subcommands_section(&mut page) } else { Ok(()) })
        .expect("a vector takes every byte");
    String::from_utf8(page).expect("help is UTF-8") + &sections(&extra)
}

/// What stands behind the options: a line that ends in a colon heads a section, lines with columns stay as they are.
fn sections(text: &str) -> String {
    let mut page = String::new();
    for line in text.lines() {
        let escaped = line.trim().replace('\\', r"\e").replace('-', r"\-").replace('\'', r"\(aq");
        match line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            Some(title) => page += &format!(".SH \"{}\"\n", title.to_uppercase().replace('-', r"\-")),
            None if escaped.is_empty() => {}
            None if line.starts_with("    ")
                || line.trim().contains("  ")
                || line.starts_with("  hydrant") =>
            {
                page += &format!(".nf\n\\&{escaped}\n.fi\n");
            }
            None => page += &format!(".PP\n\\&{escaped}\n"),
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;
    use crate::cli::commands;

    /// The file has this text, or gets it on request.
    #[track_caller]
    fn check(file: &Path, text: &str) {
        if std::env::var_os("HYDRANT_WRITE_MAN").is_some() {
            std::fs::write(file, text).expect("the folder can be written");
        }
        let stored = std::fs::read_to_string(file).unwrap_or_default();
        assert!(stored == text, "{} is out of date: see the top of {}", file.display(), file!());
    }

    #[test]
    fn the_man_pages_say_what_help_says() {
        for (name, page) in pages(commands::hydrant()) {
            check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(format!("{name}.1")), &page);
        }
    }

    /// The option as it is written, with its help and default.
    fn shown(arg: &clap::Arg) -> (Option<String>, Vec<String>) {
        let name = arg.get_long().map(|long| format!("--{long}"));
        let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string);
        let default = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
        (name, help.into_iter().chain(default).collect())
    }

    /// Options with the first line of their help, and what stands around them in full. Options that `hydrant run` has too are
    /// named, and not repeated.
    #[test]
    fn the_book_says_what_help_says() {
        let mut page = "# Options\n\nEach command with its options, in a line each. `hydrant COMMAND --help` and the manual \
                        page hydrant-COMMAND(1), which `hydrant man COMMAND` prints (`host-native/cli/man`), say more about each.\n"
            .to_owned();
        let mut command = commands::hydrant().disable_help_subcommand(true).term_width(120);
        command.build();
        let run = command.find_subcommand("run").expect("it is a command").clone();
        for verb in command.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
            let mut shared = Vec::new();
            if verb.get_name() != run.get_name() {
                *verb = verb.clone().mut_args(|arg| {
                    let own = shown(&arg);
                    let is_shared =
                        !arg.is_hide_set() && run.get_arguments().any(|other| shown(other) == own);
                    shared.extend(own.0.filter(|name| is_shared && name != "--help"));
                    let hidden = arg.is_hide_set() || is_shared;
                    arg.hide(hidden)
                });
            }
            // Other pages of the book describe what the other commands do.
            let long = verb.get_long_about().filter(|_| verb.get_name() == run.get_name());
            let about = long.or_else(|| verb.get_about()).cloned().unwrap_or_default();
            let after = verb.get_after_long_help().cloned().unwrap_or_default();
            let help = verb.clone().about(about).after_help(after).render_help().to_string();
            let help: Vec<&str> = help.lines().map(str::trim_end).collect();
            write!(page, "\n## hydrant {}\n\n```\n{}\n```\n", verb.get_name(), help.join("\n").trim_end())
                .expect("a string takes every byte");
            if !shared.is_empty() {
                writeln!(page, "\nAs in `hydrant run`: `{}`.", shared.join("` `")).expect("as above");
            }
        }
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md"), &page);
    }

    #[test]
    fn every_option_is_in_its_page() {
        let pages = pages(commands::hydrant());
        for verb in commands::hydrant().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = format!("hydrant-{}", verb.get_name());
            let page = &pages.iter().find(|(page, _)| *page == name).expect("a page for each verb").1;
            let plain = page.replace('\\', "");
            let shown = verb.get_arguments().filter(|arg| !arg.is_hide_set());
            for long in shown.filter_map(clap::Arg::get_long) {
                assert!(plain.contains(&format!("--{long}")), "{name}(1) lacks --{long}");
            }
        }
    }

    #[test]
    fn a_page_is_found_by_its_command() {
        assert!(of(None, commands::hydrant()).unwrap().contains(".TH hydrant 1"));
        assert!(of(Some("run"), commands::hydrant()).unwrap().contains(".TH hydrant-run 1"));
        let error = of(Some("rum"), commands::hydrant()).unwrap_err();
        assert!(error.starts_with("unknown command rum") && error.contains(" run "), "{error}");
    }
}
