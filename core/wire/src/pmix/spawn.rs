//! Spawn requests, as the PMI-2 messages that hosts decode.

use super::{App, Apps, Infos, keys};
use crate::write::{Style, Writer};

/// Options of a spawn in PMIx, and the info keys of PMI-2.
const OPTIONS: [(&[u8], &[u8]); 5] = [
    (keys::WDIR, b"wdir"),
    (keys::HOST, b"host"),
    (keys::HOSTFILE, b"hostfile"),
    (keys::ADD_HOST, b"add-host"),
    (keys::ADD_HOSTFILE, b"add-hostfile"),
];

/// Writes a spawn request to the front of `buf`, as the body of a PMI-2 message. Returns its length, or `None` if it
/// does not fit.
pub fn translate_spawn(infos: &Infos<'_>, apps: &Apps<'_>, buf: &mut [u8]) -> Option<usize> {
    let mut writer = Writer::new(buf, Style::Counted);
    writer.raw(b"cmd=spawn;ncmds=").number(apps.len()).raw(b";preputcount=0;");
    for app in apps.iter() {
        writer.raw(b"subcmd=").escaped(app.command);
        // A host may place processes without a number.
        writer.raw(b";maxprocs=").number(app.processes.max(1));
        // The first argument is the command.
        let args = || app.args.iter().skip(1);
        writer.raw(b";argc=").number(args().count() as u32).raw(b";");
        for (at, arg) in (0..).zip(args()) {
            writer.raw(b"argv").number(at).raw(b"=").escaped(arg).raw(b";");
        }
        write_options(infos, &app, &mut writer);
    }
    writer.finish().ok().map(<[u8]>::len)
}

fn write_options(infos: &Infos<'_>, app: &App<'_>, writer: &mut Writer<'_>) {
    let options = || {
        let infos = infos.iter().chain(app.infos.iter());
        let named = infos.filter_map(|info| {
            let (_, key) = OPTIONS.iter().find(|(key, _)| *key == info.key)?;
            Some((*key, info.as_string()?))
        });
        // Later ones override earlier ones.
        app.cwd.map(|cwd| (&b"wdir"[..], cwd)).into_iter().chain(named)
    };
    let variables = || app.env.iter().filter(|variable| !variable.contains(&b'\n'));
    let has_variables = variables().next().is_some();
    let count = options().count() as u32 + u32::from(has_variables);
    writer.raw(b"infokeycount=").number(count).raw(b";");
    for (at, (key, value)) in (0..).zip(options()) {
        writer.raw(b"infokey").number(at).raw(b"=").raw(key).raw(b";");
        writer.raw(b"infoval").number(at).raw(b"=").escaped(value).raw(b";");
    }
    if has_variables {
        let at = count - 1;
        writer.raw(b"infokey").number(at).raw(b"=env;infoval").number(at).raw(b"=");
        for (at, variable) in variables().enumerate() {
            writer.raw(if at > 0 { b"\n" } else { b"" }).escaped(variable);
        }
        writer.raw(b";");
    }
}
