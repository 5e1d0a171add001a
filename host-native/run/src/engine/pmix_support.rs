//! Functions of libpmix that the run serves, and the attributes that each of them heeds.
//!
//! One table answers `PMIX_QUERY_ATTRIBUTE_SUPPORT` about servers and about hosts, which are one here, and names requests that are
//! refused. libpmix itself answers for the functions of clients and tools. `docs/pmix.md` lists what is in the table.

use hydrant_core::wire::pmix::{Infos, Integers, Writer, keys, kind};

/// Attribute: its macro in `pmix_common.h`, its name, the type of its value, and for the key of a query the qualifiers that it
/// heeds.
pub(super) struct Attribute {
    label: &'static str,
    pub(super) name: &'static [u8],
    kind: u16,
    pub(super) qualifiers: &'static str,
}

/// Declares an attribute by the name of its key, the type of its value, and qualifiers.
macro_rules! attribute {
    ($name:ident, $kind:ident) => {
        attribute!($name, $kind, "")
    };
    ($name:ident, $kind:ident, $qualifiers:expr) => {
        Attribute {
            label: concat!("PMIX_", stringify!($name)),
            name: keys::$name,
            kind: kind::$kind,
            qualifiers: $qualifiers,
        }
    };
}

const OF_JOB: &str = "pmix.nspace,pmix.jobid,pmix.procid";
const OF_RANKS: &str = "pmix.nspace,pmix.jobid,pmix.procid,pmix.rank";
/// The supported keys. The server answers those of process sets, and gives its address.
pub(super) const SUPPORTED: [Attribute; 19] = [
    attribute!(QUERY_NAMESPACES, STRING),
    attribute!(QUERY_NAMESPACE_INFO, DATA_ARRAY, OF_JOB),
    attribute!(QUERY_PROC_TABLE, DATA_ARRAY, OF_RANKS),
    attribute!(QUERY_LOCAL_PROC_TABLE, DATA_ARRAY, OF_RANKS),
    attribute!(QUERY_MEMORY_USAGE, DATA_ARRAY, OF_RANKS),
    attribute!(JOB_SIZE, UINT32, OF_JOB),
    attribute!(UNIV_SIZE, UINT32),
    attribute!(NUM_SLOTS, UINT32, "pmix.hname"),
    attribute!(QUERY_AVAILABLE_SLOTS, UINT32),
    attribute!(QUERY_SPAWN_SUPPORT, STRING),
    attribute!(QUERY_DEBUG_SUPPORT, STRING),
    attribute!(QUERY_RESOLVE_NODE, STRING, OF_JOB),
    attribute!(QUERY_RESOLVE_PEERS, DATA_ARRAY, "pmix.hname,pmix.nspace,pmix.jobid,pmix.procid"),
    attribute!(QUERY_SUPPORTED_KEYS, STRING),
    attribute!(
        QUERY_ATTRIBUTE_SUPPORT,
        DATA_ARRAY,
        "pmix.host.fns,pmix.srvr.fns,pmix.host.attrs,pmix.srvr.attrs"
    ),
    attribute!(SERVER_URI, STRING),
    attribute!(QUERY_NUM_PSETS, SIZE, "pmix.nspace"),
    attribute!(QUERY_PSET_NAMES, STRING, "pmix.nspace"),
    attribute!(QUERY_PSET_MEMBERSHIP, DATA_ARRAY, "pmix.pset.nm,pmix.nspace"),
];

const COLLECT_DATA: Attribute = attribute!(COLLECT_DATA, BOOL);
const TIMEOUT: Attribute = attribute!(TIMEOUT, INT);
const RANGE: Attribute = attribute!(RANGE, DATA_RANGE);

const OF_FENCES: &[Attribute] = &[COLLECT_DATA, TIMEOUT];
const OF_CONNECTIONS: &[Attribute] = &[TIMEOUT];
const OF_GETS: &[Attribute] = &[TIMEOUT, attribute!(IMMEDIATE, BOOL), attribute!(GET_REFRESH_CACHE, BOOL)];
const OF_PUBLICATIONS: &[Attribute] = &[
    RANGE,
    attribute!(PERSISTENCE, PERSIST),
    attribute!(ACCESS_PERMISSIONS, DATA_ARRAY),
    attribute!(ACCESS_USERIDS, DATA_ARRAY),
];
const OF_LOOKUPS: &[Attribute] = &[RANGE, attribute!(WAIT, INT), TIMEOUT];
/// Of spawns by ranks and tools.
pub(super) const OF_SPAWNS: &[Attribute] = &[
    attribute!(HOST, STRING),
    attribute!(HOSTFILE, STRING),
    attribute!(ADD_HOST, STRING),
    attribute!(ADD_HOSTFILE, STRING),
    attribute!(WDIR, STRING),
    attribute!(MAPBY, STRING),
    attribute!(PPR, STRING),
    attribute!(COSPAWN_APP, BOOL),
];
const OF_TOOL_SPAWNS: &[Attribute] = &[
    attribute!(FWD_STDIN, BOOL),
    attribute!(FWD_STDOUT, BOOL),
    attribute!(FWD_STDERR, BOOL),
    attribute!(STDIN_TGT, PROC),
    attribute!(DEBUGGER_DAEMONS, BOOL),
];
/// Of spawns by debuggers.
pub(super) const OF_DEBUGGERS: &[Attribute] = &[
    attribute!(DEBUG_STOP_IN_INIT, BOOL),
    attribute!(DEBUG_STOP_IN_APP, BOOL),
    attribute!(DEBUG_TARGET, PROC),
    attribute!(DEBUG_DAEMONS_PER_NODE, UINT16),
    attribute!(DEBUG_DAEMONS_PER_PROC, UINT16),
];
/// The same where the system can stop a process at its first instruction.
pub(super) const OF_TRACERS: &[Attribute] =
    if cfg!(target_os = "linux") { &[attribute!(DEBUG_STOP_ON_EXEC, BOOL)] } else { &[] };
const OF_NOTICES: &[Attribute] = &[
    attribute!(EVENT_CUSTOM_RANGE, DATA_ARRAY),
    attribute!(EVENT_NON_DEFAULT, BOOL),
    attribute!(EVENT_DO_NOT_CACHE, BOOL),
];
const OF_LOGS: &[Attribute] = &[
    attribute!(LOG_STDOUT, STRING),
    attribute!(LOG_STDERR, STRING),
    attribute!(LOG_SYSLOG, STRING),
    attribute!(LOG_LOCAL_SYSLOG, STRING),
    attribute!(LOG_GLOBAL_SYSLOG, STRING),
    attribute!(LOG_SYSLOG_PRI, INT),
    attribute!(LOG_ONCE, BOOL),
    attribute!(LOG_KEY, STRING),
    attribute!(LOG_VAL, STRING),
    attribute!(LOG_AGG, BOOL),
];
const OF_ALLOCATIONS: &[Attribute] = &[
    attribute!(ALLOC_NODE_LIST, STRING),
    attribute!(ALLOC_NUM_NODES, UINT64),
    attribute!(ALLOC_ID, STRING),
    attribute!(ALLOC_REQ_ID, STRING),
];
const OF_CONTROLS: &[Attribute] = &[
    attribute!(JOB_CTRL_ID, STRING),
    attribute!(JOB_CTRL_SIGNAL, INT),
    attribute!(JOB_CTRL_PAUSE, BOOL),
    attribute!(JOB_CTRL_RESUME, BOOL),
    attribute!(JOB_CTRL_TERMINATE, BOOL),
    attribute!(JOB_CTRL_KILL, BOOL),
    attribute!(JOB_CTRL_DEFINE_PSET, STRING),
    attribute!(REGISTER_CLEANUP, STRING),
];
const OF_MONITORS: &[Attribute] = &[
    attribute!(MONITOR_ID, STRING),
    attribute!(MONITOR_CANCEL, STRING),
    attribute!(MONITOR_HEARTBEAT, BOOL),
    attribute!(MONITOR_HEARTBEAT_TIME, UINT32),
    attribute!(MONITOR_HEARTBEAT_DROPS, UINT32),
    attribute!(MONITOR_FILE, STRING),
    attribute!(MONITOR_FILE_SIZE, BOOL),
    attribute!(MONITOR_FILE_ACCESS, STRING),
    attribute!(MONITOR_FILE_MODIFY, STRING),
    attribute!(MONITOR_FILE_CHECK_TIME, UINT32),
    attribute!(MONITOR_FILE_DROPS, UINT32),
    RANGE,
];
/// What processes and hosts use.
const OF_USAGE: &[Attribute] = &[
    attribute!(MONITOR_PROC_RESOURCE_USAGE, DATA_ARRAY),
    attribute!(MONITOR_NODE_RESOURCE_USAGE, DATA_ARRAY),
    attribute!(MONITOR_DISK_RESOURCE_USAGE, DATA_ARRAY),
    attribute!(MONITOR_NET_RESOURCE_USAGE, DATA_ARRAY),
    attribute!(MONITOR_RESOURCE_RATE, UINT32),
    attribute!(MONITOR_TARGET_PROCS, DATA_ARRAY),
    attribute!(MONITOR_TARGET_PIDS, DATA_ARRAY),
    attribute!(MONITOR_TARGET_NODES, DATA_ARRAY),
    attribute!(MONITOR_TARGET_NODEIDS, DATA_ARRAY),
    attribute!(MONITOR_TARGET_DISKS, DATA_ARRAY),
    attribute!(MONITOR_TARGET_NETS, DATA_ARRAY),
    attribute!(MONITOR_LOCAL_ONLY, BOOL),
];
const OF_GROUP_ENDS: &[Attribute] = &[TIMEOUT, attribute!(GROUP_NOTIFY_TERMINATION, BOOL)];
const OF_GROUPS: &[Attribute] = &[
    attribute!(GROUP_ASSIGN_CONTEXT_ID, BOOL),
    attribute!(GROUP_FT_COLLECTIVE, BOOL),
    attribute!(GROUP_BOOTSTRAP, SIZE),
    attribute!(GROUP_ADD_MEMBERS, DATA_ARRAY),
    attribute!(GROUP_INFO, DATA_ARRAY),
    attribute!(GROUP_ENDPT_DATA, DATA_ARRAY),
];

/// Function of libpmix.
struct Function {
    name: &'static str,
    /// There is one that does not block, with `_nb` behind its name.
    has_twin: bool,
    /// Attributes that are heeded, or `None` if the function is refused.
    attributes: Option<&'static [&'static [Attribute]]>,
}

const fn blocks(name: &'static str) -> Function {
    Function { name, has_twin: false, attributes: Some(&[]) }
}

const fn heeds(name: &'static str, attributes: &'static [&'static [Attribute]]) -> Function {
    Function { name, has_twin: true, attributes: Some(attributes) }
}

const fn refused(name: &'static str) -> Function {
    Function { name, has_twin: true, attributes: None }
}

/// Functions of libpmix, by the numbers of their commands.
const COMMANDS: [Function; 40] = [
    blocks("PMIx_Init"),
    blocks("PMIx_Abort"),
    blocks("PMIx_Commit"),
    heeds("PMIx_Fence", &[OF_FENCES]),
    heeds("PMIx_Get", &[OF_GETS]),
    blocks("PMIx_Finalize"),
    heeds("PMIx_Publish", &[OF_PUBLICATIONS]),
    heeds("PMIx_Lookup", &[OF_LOOKUPS]),
    heeds("PMIx_Unpublish", &[]),
    heeds("PMIx_Spawn", &[OF_SPAWNS, OF_TOOL_SPAWNS, OF_DEBUGGERS, OF_TRACERS]),
    heeds("PMIx_Connect", &[OF_CONNECTIONS]),
    heeds("PMIx_Disconnect", &[OF_CONNECTIONS]),
    Function { has_twin: false, ..heeds("PMIx_Notify_event", &[OF_NOTICES]) },
    blocks("PMIx_Register_event_handler"),
    blocks("PMIx_Deregister_event_handler"),
    heeds("PMIx_Query_info", &[&SUPPORTED]),
    heeds("PMIx_Log", &[OF_LOGS]),
    heeds("PMIx_Allocation_request", &[OF_ALLOCATIONS]),
    heeds("PMIx_Job_control", &[OF_CONTROLS]),
    heeds("PMIx_Process_monitor", &[OF_MONITORS, OF_USAGE]),
    refused("PMIx_Get_credential"),
    refused("PMIx_Validate_credential"),
    blocks("PMIx_IOF_pull"),
    blocks("PMIx_IOF_push"),
    heeds("PMIx_Group_construct", &[OF_GROUPS, OF_GROUP_ENDS]),
    refused("PMIx_Group_join"),
    refused("PMIx_Group_invite"),
    refused("PMIx_Group_leave"),
    heeds("PMIx_Group_destruct", &[OF_GROUP_ENDS]),
    blocks("PMIx_IOF_deregister"),
    refused("PMIx_Fabric_register"),
    refused("PMIx_Fabric_update"),
    refused("PMIx_Compute_distances"),
    blocks("a refresh of data"),
    refused("PMIx_Resource_block"),
    refused("PMIx_Session_control"),
    refused("a request for the topology"),
    blocks("PMIx_Resolve_peers"),
    blocks("PMIx_Resolve_nodes"),
    refused("a change of the data format"),
];

/// Functions for which libpmix sends other commands, or none: events, attributes of the job.
const OTHERS: [Function; 5] = [
    blocks("PMIx_Initialized"),
    blocks("PMIx_Put"),
    blocks("PMIx_Heartbeat"),
    heeds("PMIx_Group_invite", &[]),
    heeds("PMIx_Group_join", &[]),
];

/// Returns the functions that are served.
fn served() -> impl Iterator<Item = &'static Function> + Clone {
    let functions = COMMANDS.iter().chain(&OTHERS);
    functions.filter(|function| function.attributes.is_some() && function.name.starts_with("PMIx_"))
}

impl Function {
    /// Returns the name, and that of the twin.
    fn names(&self) -> impl Iterator<Item = String> + use<> {
        [Some(self.name.to_owned()), self.has_twin.then(|| format!("{}_nb", self.name))].into_iter().flatten()
    }

    fn attributes(&self) -> impl Iterator<Item = &'static Attribute> + Clone + use<> {
        self.attributes.unwrap_or_default().iter().copied().flatten()
    }
}

/// Returns the name of the function that a command is sent for.
pub(super) fn name_of(command: usize) -> Option<&'static str> {
    COMMANDS.get(command).map(|function| function.name)
}

/// Returns the names of attributes.
pub(super) fn list<'a>(attributes: impl Iterator<Item = &'a Attribute>) -> Vec<u8> {
    attributes.map(|attribute| attribute.name).collect::<Vec<_>>().join(&b","[..])
}

/// Returns whether a list of functions, which may be missing, has one of these.
fn lists(list: &[u8], mut names: impl Iterator<Item = String>) -> bool {
    let is_any = list.is_empty() || list.split(|&byte| byte == b',').any(|name| name == b"all");
    is_any || names.any(|own| list.split(|&byte| byte == b',').any(|name| name == own.as_bytes()))
}

pub(super) fn text(key: &[u8], value: &[u8], writer: &mut Writer<'_>) {
    writer.info(key, kind::STRING);
    writer.string(value);
}

/// Writes an INFO with an array, up to its elements.
pub(super) fn array(key: &[u8], of: u16, len: usize, writer: &mut Writer<'_>) {
    writer.info(key, kind::DATA_ARRAY);
    writer.data_type(of);
    writer.size(len as u64);
}

/// Writes the functions that are served, and the attributes of some, as the qualifiers ask; all if they do not. Returns whether
/// there are any.
pub(super) fn write(key: &[u8], infos: &Infos<'_>, writer: &mut Writer<'_>) -> bool {
    let is_open = infos.is_empty();
    let wanted = |name: &&str| is_open || infos.find(name.as_bytes()).is_some();
    let names = || ["pmix.srvr.fns", "pmix.host.fns"].into_iter().filter(wanted);
    // Older formats have no type for attributes.
    let has_type = writer.integers() == Integers::Flexible;
    let sources =
        || ["pmix.srvr.attrs", "pmix.host.attrs"].into_iter().filter(|name| has_type && wanted(name));
    let functions = || {
        sources().flat_map(|source| {
            let list = infos.find(source.as_bytes()).and_then(|info| info.as_string()).unwrap_or_default();
            let named = move |function: &&Function| lists(list, function.names());
            served().filter(named)
        })
    };
    let count = names().count() + functions().count();
    if count == 0 {
        return false;
    }
    array(key, kind::INFO, count, writer);
    let all: Vec<String> = served().flat_map(Function::names).collect();
    names().for_each(|name| text(name.as_bytes(), all.join(",").as_bytes(), writer));
    for function in functions() {
        write_attributes(function, writer);
    }
    true
}

/// Writes the attributes of a function, or one called `NONE`, as libpmix has it.
fn write_attributes(function: &Function, writer: &mut Writer<'_>) {
    const NONE: &Attribute = &Attribute { label: "NONE", name: b"", kind: 0, qualifiers: "" };
    let none = function.attributes().next().is_none().then_some(NONE);
    let attributes = || function.attributes().chain(none);
    array(function.name.as_bytes(), kind::REGATTR, attributes().count(), writer);
    for attribute in attributes() {
        writer.string(attribute.label.as_bytes());
        writer.string(attribute.name);
        // A type by itself is a signed number, unlike that of a value.
        writer.int32(attribute.kind.into());
        writer.count(1);
        writer.string(attribute.qualifiers.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Name, state and macros of each row of a section of the page.
    fn rows(section: &str) -> Vec<(&'static str, &'static str)> {
        let page = include_str!("../../../../docs/pmix.md");
        let (_, rest) = page.split_once(&format!("## {section}\n")).expect("the page has the section");
        let text = rest.split("\n## ").next().unwrap_or_default();
        let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| name "));
        rows.filter_map(|row| {
            let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
            Some((cells.next()?, cells.next()?))
        })
        .collect()
    }

    fn macros(cell: &'static str) -> BTreeSet<&'static str> {
        cell.split('`').filter(|word| word.starts_with("PMIX_")).collect()
    }

    #[test]
    fn each_key_of_a_request_is_one_of_a_function() {
        let of_functions: BTreeSet<&str> =
            served().flat_map(Function::attributes).map(|attribute| attribute.label).collect();
        let is_elsewhere = |label: &str| cfg!(not(target_os = "linux")) && label == "PMIX_DEBUG_STOP_ON_EXEC";
        for (label, _) in keys::ALL {
            assert!(of_functions.contains(label) || is_elsewhere(label), "{label}");
        }
    }

    #[test]
    fn the_page_says_which_commands_are_served() {
        let mut numbers: BTreeSet<u32> = BTreeSet::new();
        for (name, state) in rows("Requests") {
            let numbers_of = name.split('(').skip(1).filter_map(|part| part.split(')').next());
            for number in numbers_of.flat_map(|list| list.split(", ")).filter_map(|text| text.parse().ok()) {
                let function = &COMMANDS[number as usize];
                assert_eq!(function.attributes.is_some(), !state.starts_with("refused"), "{name}, {number}");
                numbers.insert(number);
            }
        }
        assert!(numbers.into_iter().eq(0..COMMANDS.len() as u32), "each command has a row");
    }

    // Serves: Attributes of requests | `PMIx_Fence` | served: `PMIX_COLLECT_DATA`, `PMIX_TIMEOUT`
    // Serves: Attributes of requests | `PMIx_Get` | served: `PMIX_TIMEOUT`, `PMIX_IMMEDIATE`, `PMIX_GET_REFRESH_CACHE`
    // Serves: Attributes of requests | `PMIx_Publish` | served: `PMIX_RANGE`, `PMIX_PERSISTENCE`, `PMIX_ACCESS_PERMISSIONS`,
    // `PMIX_ACCESS_USERIDS`
    // Serves: Attributes of requests | `PMIx_Lookup` | served: `PMIX_RANGE`, `PMIX_WAIT`, `PMIX_TIMEOUT`
    // Serves: Attributes of requests | `PMIx_Connect` | served: `PMIX_TIMEOUT`
    // Serves: Attributes of requests | `PMIx_Disconnect` | served: `PMIX_TIMEOUT`
    // Serves: Attributes of requests | `PMIx_Spawn` | served: `PMIX_HOST`, `PMIX_HOSTFILE`, `PMIX_ADD_HOST`,
    // `PMIX_ADD_HOSTFILE`, `PMIX_WDIR`, `PMIX_MAPBY`, `PMIX_PPR`, `PMIX_COSPAWN_APP`; of tools
    // also `PMIX_FWD_STDIN`, `PMIX_FWD_STDOUT`, `PMIX_FWD_STDERR`, `PMIX_STDIN_TGT`,
    // `PMIX_DEBUGGER_DAEMONS`, `PMIX_DEBUG_STOP_IN_INIT`, `PMIX_DEBUG_STOP_IN_APP`, `PMIX_DEBUG_TARGET`,
    // `PMIX_DEBUG_DAEMONS_PER_NODE`, `PMIX_DEBUG_DAEMONS_PER_PROC`, and on Linux `PMIX_DEBUG_STOP_ON_EXEC`
    // Serves: Attributes of requests | `PMIx_Notify_event` | served: `PMIX_EVENT_CUSTOM_RANGE`, `PMIX_EVENT_NON_DEFAULT`,
    // `PMIX_EVENT_DO_NOT_CACHE`
    // Serves: Attributes of requests | `PMIx_Log` | served: `PMIX_LOG_STDOUT`, `PMIX_LOG_STDERR`, `PMIX_LOG_SYSLOG`,
    // `PMIX_LOG_LOCAL_SYSLOG`, `PMIX_LOG_GLOBAL_SYSLOG`, `PMIX_LOG_SYSLOG_PRI`, `PMIX_LOG_ONCE`, `PMIX_LOG_KEY`, `PMIX_LOG_VAL`,
    // `PMIX_LOG_AGG`
    // Serves: Attributes of requests | `PMIx_Allocation_request` | served: `PMIX_ALLOC_NODE_LIST`, `PMIX_ALLOC_NUM_NODES`,
    // `PMIX_ALLOC_ID`, `PMIX_ALLOC_REQ_ID`
    // Serves: Attributes of requests | `PMIx_Job_control` | served: `PMIX_JOB_CTRL_ID`, `PMIX_JOB_CTRL_SIGNAL`,
    // `PMIX_JOB_CTRL_PAUSE`, `PMIX_JOB_CTRL_RESUME`, `PMIX_JOB_CTRL_TERMINATE`, `PMIX_JOB_CTRL_KILL`,
    // `PMIX_JOB_CTRL_DEFINE_PSET`, `PMIX_REGISTER_CLEANUP`
    // Serves: Attributes of requests | `PMIx_Process_monitor` | served: `PMIX_MONITOR_ID`, `PMIX_MONITOR_CANCEL`,
    // `PMIX_MONITOR_HEARTBEAT`, `PMIX_MONITOR_HEARTBEAT_TIME`, `PMIX_MONITOR_HEARTBEAT_DROPS`, `PMIX_MONITOR_FILE`,
    // `PMIX_MONITOR_FILE_SIZE`, `PMIX_MONITOR_FILE_ACCESS`, `PMIX_MONITOR_FILE_MODIFY`, `PMIX_MONITOR_FILE_CHECK_TIME`,
    // `PMIX_MONITOR_FILE_DROPS`, `PMIX_RANGE`, `PMIX_MONITOR_PROC_RESOURCE_USAGE`, `PMIX_MONITOR_NODE_RESOURCE_USAGE`,
    // `PMIX_MONITOR_DISK_RESOURCE_USAGE`, `PMIX_MONITOR_NET_RESOURCE_USAGE`, `PMIX_MONITOR_RESOURCE_RATE`,
    // `PMIX_MONITOR_TARGET_PROCS`, `PMIX_MONITOR_TARGET_PIDS`, `PMIX_MONITOR_TARGET_NODES`, `PMIX_MONITOR_TARGET_NODEIDS`,
    // `PMIX_MONITOR_TARGET_DISKS`, `PMIX_MONITOR_TARGET_NETS`, `PMIX_MONITOR_LOCAL_ONLY`
    // Serves: Attributes of requests | `PMIx_Group_construct` | served: `PMIX_GROUP_ASSIGN_CONTEXT_ID`,
    // `PMIX_GROUP_FT_COLLECTIVE`, `PMIX_GROUP_BOOTSTRAP`, `PMIX_GROUP_ADD_MEMBERS`, `PMIX_GROUP_INFO`, `PMIX_GROUP_ENDPT_DATA`,
    // `PMIX_TIMEOUT`, `PMIX_GROUP_NOTIFY_TERMINATION`
    // Serves: Attributes of requests | `PMIx_Group_destruct` | served: `PMIX_TIMEOUT`, `PMIX_GROUP_NOTIFY_TERMINATION`
    #[test]
    fn the_page_lists_attributes_of_each_function() {
        let queries: BTreeSet<&str> = rows("Queries")
            .iter()
            .filter(|(_, state)| !state.starts_with("refused"))
            .flat_map(|(name, _)| macros(name))
            .collect();
        let mut rows = rows("Attributes of requests");
        for function in served().filter(|function| function.attributes().next().is_some()) {
            let labels: BTreeSet<&str> = function.attributes().map(|attribute| attribute.label).collect();
            assert!(labels.iter().all(|label| label.starts_with("PMIX_")), "{labels:?}");
            if function.name == "PMIx_Query_info" {
                // It is a qualifier.
                let keys: BTreeSet<&str> =
                    queries.iter().copied().filter(|key| *key != "PMIX_QUERY_SUPPORTED_QUALIFIERS").collect();
                assert_eq!(labels, keys);
                continue;
            }
            let named = format!("`{}`", function.name);
            let at = rows.iter().position(|(name, _)| *name == named);
            let (_, state) = rows.remove(at.unwrap_or_else(|| panic!("{named} has no row")));
            let mut listed = macros(state);
            if cfg!(not(target_os = "linux")) {
                listed.remove("PMIX_DEBUG_STOP_ON_EXEC");
            }
            assert_eq!(labels, listed, "{named}");
        }
        assert!(rows.is_empty(), "no such functions: {rows:?}");
    }
}
