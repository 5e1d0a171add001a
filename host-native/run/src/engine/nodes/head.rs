//! Start of a run on several hosts at the head.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use hydrant_board::manage::Secret;
use hydrant_control::protocol::{Boards, PluginFile, RankBlock, Setup};
use hydrant_control::{Config, FirstJob};
use hydrant_core::peer::tree::{RADIX_MAX, RADIX_MIN, Tree};
use hydrant_core::server::FenceMode;
use hydrant_core::{Fault, Input, Limit, Limits, Time};
use hydrant_overlay::{DaemonSettings, Enrolment, MESSAGE_MAX, Overlay, TreeSpec, daemon_program};
use hydrant_placement::{Bootstrap, Deployment, Host, JobMap, Node, process_mapping};
use hydrant_reactor::{OpenFiles, Reactor, fill_random, set_close_on_exec};
use hydrant_start::FileSender;

use super::super::called_debugger::CalledDebugger;
use super::super::fleet::Fleet;
use super::super::grow::Growths;
use super::super::help_texts::HelpTexts;
use super::super::names::Names;
use super::super::pmix_query::PmixQueries;
use super::super::profile::Profile;
use super::super::progress::Progress;
use super::super::result::RunResult;
use super::super::server::ServerParts;
use super::super::status::{RankQueries, open_status};
use super::super::token::{LINKS, Token};
use super::super::tool_input::Pushes;
use super::super::tools;
use super::super::{
    Engine, Head, OWN_FILES, Outlets, Parts, Run, STRANGERS, host_name, limits, open, record, start_guardian,
};
use super::actions::blocks_of;
use super::daemon::forked_daemon;
use super::setup::setup_of;
use super::{Nodes, ONLY_NODE, fences};
use crate::backend::{BackendBuilder, read_plugin};
use crate::debugger_call::DebuggerCall;
use crate::error::RunError;
use crate::messages::Warnings;
use crate::plan::{Elastic, Plan, Plugin, Preload};
use crate::rendezvous::new_folder;

/// Longest order, and longest message between servers, in bytes: a message has room for it and its destination.
const ORDER_MAX: usize = MESSAGE_MAX - 64;

impl Head {
    /// The head of a run on one machine: its only node is in this process.
    pub(in super::super) fn alone(
        engine: &mut Engine<'_>,
        nonce: u64,
        names: Option<Names>,
        debugger: Option<DebuggerCall>,
    ) -> Result<Head, RunError> {
        let plan = engine.plan;
        let ranks = open::size(&plan.programs)?;
        let config = Config {
            hosts: vec![Host::with_slots(&engine.host, ranks)],
            is_alone: true,
            order_max: None,
            ..config_of(plan, engine.host.clone())
        };
        let first = FirstJob {
            programs: plan.programs.clone(),
            blocks: vec![RankBlock { node: ONLY_NODE, first: 0, count: ranks }],
            mapping: process_mapping(&[(0, ranks)])?,
            nonce,
            setup: setup_of(plan, *engine.core.limits()),
            awaits_debugger: debugger.is_some(),
        };
        let control = hydrant_control::Head::new(config, first);
        Head::new(engine, control, names, (Bootstrap::Local, debugger))
    }

    /// A head whose nodes are started by `bootstrap`.
    fn new(
        engine: &mut Engine<'_>,
        control: hydrant_control::Head,
        names: Option<Names>,
        (bootstrap, debugger): (Bootstrap, Option<DebuggerCall>),
    ) -> Result<Head, RunError> {
        let plan = engine.plan;
        let progress = Progress::new(&engine.sinks, engine.is_alone()).filter(|_| !plan.settings.verbose);
        Ok(Head {
            control,
            backend_failed: false,
            draining: Vec::new(),
            files: FileSender::default(),
            finish: None,
            losses_reported: false,
            names,
            status: open_status(engine),
            bootstrap,
            rank_queries: RankQueries::default(),
            replacement: None,
            pmix_queries: PmixQueries::default(),
            growths: Growths::default(),
            help_texts: HelpTexts::default(),
            pushes: Pushes::default(),
            fleet: Fleet::open(engine)?,
            debugger: debugger.map(|call| CalledDebugger::Called(Box::new(call))),
            tool_jobs: Vec::new(),
            patience: None,
            time_limit: None,
            debuggers_informed: false,
            progress,
            profile: plan.options.profile.then(Profile::default),
            result: RunResult::open(plan.options.json.as_deref())?,
        })
    }
}

/// Runs a job on several hosts, as [`run`](super::super::run) does on one.
pub(in super::super) fn run(
    plan: &Plan,
    deployment: &Deployment,
    enrolment: &mut Option<Enrolment>,
    debugger: Option<DebuggerCall>,
) -> Result<u8, RunError> {
    set_close_on_exec()?;
    let reactor = Reactor::new(Token::Signals)?;
    let cluster = &plan.options.cluster;
    let job_map = &deployment.job_map;
    check_elastic(plan, deployment)?;
    let hosts: Vec<Host> = job_map.nodes().iter().map(|node| node.host.clone()).collect();
    let (radix, late) = (plan.radix(deployment), plan.late(deployment));
    let spec = TreeSpec { head: host_name(), hosts, radix, late };
    let tree = spec.tree();
    let plugin = plan.options.sandbox.as_ref().map(|plugin| plugin_of(plan, plugin)).transpose()?;
    // A plugin brings a thread, and the guardian has to be started before. Other heads start it when tools may come.
    let folder = plugin.is_some().then(new_folder);
    let guardian = folder.as_deref().map(|folder| start_guardian(&[folder])).transpose()?;
    let builder = BackendBuilder::new(plugin.as_ref(), &Warnings::default())?;
    let file = plugin.as_ref().map(|plugin| plugin.file.clone());
    let mut setup = setup(plan, job_map, &tree);
    check_limits(&setup.limits, job_map.ranks())?;
    setup.plugin = plugin;
    setup.boards = boards(plan, job_map)?;
    // Other runs get values of this one's jobs at the head.
    let conns = if plan.options.name_server.is_some() { STRANGERS as u32 } else { 1 };
    let conns = conns + tools::entries(plan, &setup.limits);
    // Hosts that join are children of the head.
    let limits = Limits { conns, links: setup.limits.links.saturating_add(late), ..setup.limits };
    let children = tree.children(0).count() as u64 - u64::from(tree.late());
    let files = OpenFiles::reserve(OWN_FILES + Overlay::files(children) + files_for_output(plan))?;
    let seed = open::random()?;
    let recording = record(plan.options.record.as_deref(), &limits, seed)?;
    setup.profile = plan.options.profile;
    setup.record = for_all_nodes(plan.options.record.as_deref())?;
    let mut first = FirstJob { awaits_debugger: debugger.is_some(), ..first_job(plan, job_map, setup)? };
    let mut sender = FileSender::default();
    if cluster.preload.is_some() || !cluster.preload_files.is_empty() {
        let programs = if cluster.preload.is_some() { &*first.programs } else { &[] };
        let with_libraries = cluster.preload == Some(Preload::Libraries);
        (sender, first.setup.files) = FileSender::open(programs, with_libraries, &cluster.preload_files)?;
    }
    let host = spec.head.clone();
    let (now, poller) = (reactor.clock.now(), &reactor.poller);
    let names = match &plan.options.name_server {
        Some(path) => Names::shared(plan, path, (&host, first.nonce), now, poller)?,
        None => Names::local(&builder)?,
    };
    let settings = settings(plan, deployment)?;
    // Daemons that are forked have nothing of what is made below in their memory, and start meanwhile.
    let links = match enrolment.take() {
        Some(enrolment) => Overlay::head_of_enrolled(spec, settings, enrolment, now, LINKS, poller)?,
        None => Overlay::head(spec, settings, Some(forked_daemon()), now, LINKS, &files, poller)?,
    };
    let mut slabs = None;
    let mut server =
        ServerParts::build(&builder, (limits, seed), recording, None, None, (&mut slabs, false))?;
    // Whether boards are linked decides about the tree.
    if first.setup.boards.link.is_none() {
        server.core.handle(Time(0), Input::Node { node: 0, nodes: tree.nodes(), radix: tree.form() })?;
    }
    let outlets = Outlets::of_head(plan)?;
    let mut engine = Engine::new(plan, reactor, files, outlets, server)?;
    engine.nodes = Some(Nodes::new(links, 0));
    if let Some(folder) = folder {
        engine.tools.use_folder(folder, guardian);
    }
    engine.expect_tools()?;
    let control = hydrant_control::Head::new(config(plan, deployment, (host, &tree), file), first);
    let head = Head::new(&mut engine, control, Some(names), (deployment.bootstrap.clone(), debugger))?;
    if plan.settings.verbose && plan.settings.fence == FenceMode::Auto {
        engine.sinks.print(&fences::beginning(job_map.nodes().len() as u32));
    }
    let head = Head { files: sender, ..head };
    Run { engine, parts: Parts::Head(Box::new(head)) }.run()
}

/// Checks the numbers of hosts that the user allows.
fn check_elastic(plan: &Plan, deployment: &Deployment) -> Result<(), RunError> {
    let cluster = &plan.options.cluster;
    let Some(Elastic { least, most }) = cluster.elastic else { return Ok(()) };
    let started = deployment.job_map.nodes().len() as u32;
    let hosts = started + deployment.unused.len() as u32;
    if started < least {
        return Err(RunError::FewHosts { hosts: started, least });
    }
    if most < hosts {
        return Err(RunError::HostsBeyond { hosts, most });
    }
    let (late, max) = (plan.late(deployment), RADIX_MAX - cluster.radix.unwrap_or(RADIX_MIN));
    if late > max { Err(RunError::LateHosts { late, max }) } else { Ok(()) }
}

/// Settings of the control of a run from `host`, with that tree.
fn config(
    plan: &Plan,
    Deployment { job_map, unused, .. }: &Deployment,
    (host, tree): (String, &Tree),
    plugin: Option<OsString>,
) -> Config {
    let cluster = &plan.options.cluster;
    let link_addr = |(node, of): (u32, &Node)| {
        cluster.boards.link_addr(&of.host.name).map(|addr| (node, addr.to_string()))
    };
    Config {
        hosts: job_map.nodes().iter().map(|node| &node.host).chain(unused).cloned().collect(),
        unused: unused.len() as u32,
        late: tree.late() - unused.len() as u32,
        least: cluster.elastic.map(|elastic| elastic.least),
        plugin,
        radix: tree.radix(),
        link_addrs: (1..).zip(job_map.nodes()).filter_map(link_addr).collect(),
        ..config_of(plan, host)
    }
}

/// The part that follows from the plan, for several hosts.
fn config_of(plan: &Plan, host: String) -> Config {
    let Plan { settings, options, .. } = plan;
    Config {
        host,
        hosts: Vec::new(),
        unused: 0,
        late: 0,
        least: None,
        map_by: options.cluster.placement.policy.map_by,
        verbose: settings.verbose,
        cleanup: settings.cleanup,
        stays: plan.options.fleet.is_some(),
        universe_size: options.universe_size.known(),
        exit_code_of: options.exit_code_of,
        exit_report: options.exit_report,
        is_alone: false,
        shares_names: options.name_server.is_some(),
        fence_warning: settings.fence_warning.as_millis() as u64,
        plugin: None,
        process: std::process::id(),
        order_max: Some(ORDER_MAX),
        radix: 0,
        link_addrs: Vec::new(),
    }
}

/// A plugin that all nodes run their servers in.
pub(in super::super) fn plugin_of(plan: &Plan, plugin: &Plugin) -> Result<PluginFile, RunError> {
    let read = read_plugin(plugin, plan.options.spare)?;
    // A node inside a blocking call sends no heartbeat. Half of the heartbeat timeout keeps it from being reported as
    // lost.
    let deadline = read.deadline.min(plan.options.cluster.heartbeat / 2);
    Ok(PluginFile { deadline, ..read })
}

/// Settings that daemons receive before the first job.
fn setup(plan: &Plan, job_map: &JobMap, tree: &Tree) -> Setup {
    let most = job_map.nodes().iter().map(|node| node.size()).max().unwrap_or(0);
    // Other runs show no progress, and need no reports about it.
    let progress = std::io::stderr().is_terminal() && !plan.settings.verbose;
    Setup { progress, ..setup_of(plan, node_limits(plan, job_map, tree, most)) }
}

/// Boards of the hosts.
fn boards(plan: &Plan, job_map: &JobMap) -> Result<Boards, RunError> {
    let cluster = &plan.options.cluster;
    let target = |(node, of): (u32, &Node)| Some((node, cluster.boards.of_host(&of.host.name)?));
    let targets: Vec<_> = (1..).zip(job_map.nodes()).filter_map(target).collect();
    let spare = plan.options.spare.is_some();
    let may_link = targets.len() > 1 && !spare;
    Ok(Boards {
        link: may_link.then(link_token).transpose()?,
        targets,
        secret: cluster.boards.secret.as_ref().map(Secret::to_bytes),
        heartbeat: cluster.heartbeat,
        spare,
    })
}

/// A random token.
fn link_token() -> Result<[u8; 16], RunError> {
    let mut token = [0; 16];
    fill_random(&mut token).map_err(hydrant_reactor::Error::during("getrandom"))?;
    Ok(token)
}

/// A recording's path as daemons understand it, which start somewhere else. A device or a pipe is the head's alone.
fn for_all_nodes(recording: Option<&Path>) -> Result<Option<OsString>, RunError> {
    let Some(path) = recording.filter(|path| path.is_file()) else { return Ok(None) };
    let path = std::path::absolute(path).map_err(RunError::system("cannot tell the working directory"))?;
    Ok(Some(path.into()))
}

/// The job of the command line.
fn first_job(plan: &Plan, job_map: &JobMap, setup: Setup) -> Result<FirstJob, RunError> {
    let mut programs = plan.programs.clone();
    let of_hosts = plan.options.cluster.join.as_ref().is_some_and(|join| join.with_programs);
    open::start_from_here(programs.iter_mut().filter(|_| !of_hosts))?;
    let (blocks, mapping) = (blocks_of(job_map), job_map.process_mapping()?);
    let nonce = open::nonce()?;
    Ok(FirstJob { programs, blocks, mapping, nonce, setup, awaits_debugger: false })
}

/// Limits that suit all nodes, of which none has more than `most` ranks of the first job.
fn node_limits(plan: &Plan, job_map: &JobMap, tree: &Tree, most: u32) -> Limits {
    let (nodes, late) = (tree.nodes() - 1, tree.late());
    let of_run = limits(plan, plan.ranks_expected(job_map, late));
    let mut all = Limits {
        conns: limits(plan, most).conns,
        links: tree.radix().min(nodes - late) + 1,
        psets: of_run.psets.saturating_add(node_psets(&of_run, nodes, job_map.ranks())),
        ..of_run
    };
    for &(limit, size) in &plan.options.limits {
        all.set(limit, size);
    }
    all
}

/// Checks that servers with these limits can serve a job of so many ranks, and that the overlay carries the longest message
/// that they send each other.
fn check_limits(limits: &Limits, ranks: u32) -> Result<(), RunError> {
    if limits.ranks < ranks {
        return Err(Fault::Full(Limit::Ranks, limits.ranks).into());
    }
    if limits.peer_message_max() > ORDER_MAX { Err(RunError::RanksOnNodes(limits.ranks)) } else { Ok(()) }
}

/// Returns the number of process sets of nodes that the first job, of `ranks` ranks, and spawned ones can have. A job has one
/// for each of its nodes, so at most one for each rank.
fn node_psets(limits: &Limits, nodes: u32, ranks: u32) -> u32 {
    let spawned = limits.jobs.saturating_sub(1).saturating_mul(nodes);
    nodes.saturating_add(spawned.min(limits.ranks.saturating_sub(ranks)))
}

fn files_for_output(plan: &Plan) -> u64 {
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    patterns.into_iter().flatten().count() as u64 * u64::from(plan.size())
}

fn settings(plan: &Plan, deployment: &Deployment) -> Result<DaemonSettings, RunError> {
    let cluster = &plan.options.cluster;
    let program = daemon_program(cluster.remote_hydrant.as_ref(), &deployment.bootstrap)?;
    let millis = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
    Ok(DaemonSettings {
        bootstrap: deployment.bootstrap.clone(),
        bootstrap_exec: cluster.bootstrap_exec.as_ref().map(|path| path.clone().into()),
        bootstrap_args: cluster.bootstrap_args.clone(),
        program,
        iface: cluster.iface.clone(),
        heartbeat_timeout: millis(cluster.heartbeat),
        join_timeout: millis(cluster.bootstrap_timeout),
    })
}

#[cfg(test)]
mod tests {
    use hydrant_placement::{Hosts, MappingPolicy};

    use super::*;

    #[test]
    fn there_is_a_process_set_for_each_node_of_each_job() {
        let limits = Limits { jobs: 3, ranks: 20, ..Limits::NONE };
        let sets = |nodes, ranks| node_psets(&limits, nodes, ranks);
        assert_eq!(sets(2, 10), 2 + 2 * 2, "two spawned jobs on two nodes");
        assert_eq!(sets(10, 15), 10 + 5, "five ranks are left for spawned jobs");
        assert_eq!(sets(10, 20), 10, "no rank is left");
        assert_eq!(node_psets(&Limits { jobs: 0, ..limits }, 10, 15), 10);
    }

    #[test]
    fn tables_are_made_for_the_hosts_that_may_join() {
        let hosts = Hosts::parse("n1:2,n2:40").expect("it is a list");
        let job_map = JobMap::new(&hosts, &[2], MappingPolicy::default()).expect("the hosts have room");
        let mut plan = Plan::new(Vec::new());
        let expected = |plan: &Plan, late| plan.ranks_expected(&job_map, late);
        assert_eq!(expected(&plan, 3), 2, "unused hosts of a run that is not elastic");
        plan.options.cluster.elastic = Some(Elastic { least: 1, most: 5 });
        assert_eq!(expected(&plan, 0), 2);
        assert_eq!(expected(&plan, 3), 2 + 3 * 40, "the largest host of the start has 40 slots");
        assert_eq!(expected(&plan, 1000), 2 + 16_384);
    }

    #[test]
    fn members_of_a_group_fit_into_a_message() {
        let of = |ranks| Limits { links: 3, ..Limits::for_ranks(ranks) };
        assert!(check_limits(&of(250_000_000), 4).is_ok());
        let error = check_limits(&of(300_000_000), 4).unwrap_err();
        assert!(error.with_hint().contains("ranks of 300001024 is too large") && error.hint().is_some());
    }
}
