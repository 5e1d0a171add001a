//! Runs four ranks of an MPI program on this machine: `cargo run --example four_ranks ./hello`.

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::{Command, exit};
use std::{env, fs};

use hydrant_host::{Event, Exit, Host, Job, Output, Rank, Settings, Speaks, random_name};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = env::args_os().skip(1).collect();
    let (program, args) = args.split_first().ok_or("usage: four_ranks PROGRAM [ARGUMENT...]")?;
    let mut host = Host::open(&Settings::for_ranks(4))?;
    let job = host.register_job(&Job::new(random_name()?, 4))?;
    host.listen(job, (Ipv4Addr::LOCALHOST, 0).into(), Speaks::Pmix)?;
    let (mut children, mut running, mut code) = (Vec::new(), 4, None);
    for rank in (0..4).map(Rank) {
        let mut command = Command::new(program);
        host.setup_fork(job, rank, command.args(args))?;
        children.push(command.spawn()?);
        host.watch(job, rank, children[rank.0 as usize].id())?;
    }
    while running > 0 {
        host.wait(None)?;
        while let Some(event) = host.next_event()? {
            match event {
                Event::Exited { exit: Exit::Code(0), .. } => running -= 1,
                Event::Exited { rank, exit, .. } => {
                    // As one piece, because ranks write there, too.
                    let line = format!("rank {rank} {exit}\n");
                    eprint!("{line}");
                    code.get_or_insert(exit.exit_code());
                    running -= 1;
                }
                Event::Output(Output::AbortJob { cause, .. }) => {
                    let line = format!("{cause}\n");
                    eprint!("{line}");
                    code.get_or_insert(cause.exit_code());
                    children.iter_mut().for_each(|child| drop(child.kill()));
                }
                Event::Output(Output::KillRank { rank, code: asked, .. }) => {
                    code.get_or_insert(Exit::of_killed(asked).exit_code());
                    children[rank.0 as usize].kill()?;
                }
                // Segments of shared memory of a rank that has ended.
                Event::Output(Output::RemoveFiles { paths, .. }) => {
                    String::from_utf8_lossy(&paths).split(',').for_each(|path| drop(fs::remove_file(path)));
                }
                _ => {}
            }
        }
    }
    children.iter_mut().try_for_each(|child| child.wait().map(drop))?;
    exit(code.unwrap_or(0).into())
}
