//! Keys of the attributes that requests may have, by the names of their macros in `pmix_common.h`.

/// Declares keys: the name of the macro without `PMIX_`, and its text.
macro_rules! keys {
    ($($name:ident $text:literal;)*) => {
        $(
            #[doc = concat!("`PMIX_", stringify!($name), "`.")]
            pub const $name: &[u8] = $text.as_bytes();
        )*

        /// All of them, with the names of their macros.
        pub const ALL: &[(&str, &[u8])] = &[$((concat!("PMIX_", stringify!($name)), $name)),*];
    };
}

keys! {
    QUERY_NAMESPACES "pmix.qry.ns";
    QUERY_NAMESPACE_INFO "pmix.qry.nsinfo";
    QUERY_PROC_TABLE "pmix.qry.ptable";
    QUERY_LOCAL_PROC_TABLE "pmix.qry.lptable";
    QUERY_MEMORY_USAGE "pmix.qry.mem";
    JOB_SIZE "pmix.job.size";
    UNIV_SIZE "pmix.univ.size";
    NUM_SLOTS "pmix.num.slots";
    QUERY_AVAILABLE_SLOTS "pmix.qry.aslots";
    QUERY_SPAWN_SUPPORT "pmix.qry.spawn";
    QUERY_DEBUG_SUPPORT "pmix.qry.debug";
    QUERY_RESOLVE_NODE "pmix.qry.node";
    QUERY_RESOLVE_PEERS "pmix.qry.peers";
    QUERY_SUPPORTED_KEYS "pmix.qry.keys";
    QUERY_ATTRIBUTE_SUPPORT "pmix.qry.attrs";
    SERVER_URI "pmix.srvr.uri";
    QUERY_NUM_PSETS "pmix.qry.psetnum";
    QUERY_PSET_NAMES "pmix.qry.psets";
    QUERY_PSET_MEMBERSHIP "pmix.qry.pmems";
    COLLECT_DATA "pmix.collect";
    TIMEOUT "pmix.timeout";
    RANGE "pmix.range";
    IMMEDIATE "pmix.immediate";
    GET_REFRESH_CACHE "pmix.get.refresh";
    PERSISTENCE "pmix.persist";
    ACCESS_PERMISSIONS "pmix.aperms";
    ACCESS_USERIDS "pmix.auids";
    WAIT "pmix.wait";
    HOST "pmix.host";
    HOSTFILE "pmix.hostfile";
    ADD_HOST "pmix.addhost";
    ADD_HOSTFILE "pmix.addhostfile";
    WDIR "pmix.wdir";
    MAPBY "pmix.mapby";
    PPR "pmix.ppr";
    COSPAWN_APP "pmix.cospawn";
    FWD_STDIN "pmix.fwd.stdin";
    FWD_STDOUT "pmix.fwd.stdout";
    FWD_STDERR "pmix.fwd.stderr";
    STDIN_TGT "pmix.stdin";
    DEBUGGER_DAEMONS "pmix.debugger";
    DEBUG_STOP_IN_INIT "pmix.dbg.init";
    DEBUG_STOP_IN_APP "pmix.dbg.notify";
    DEBUG_TARGET "pmix.dbg.tgt";
    DEBUG_DAEMONS_PER_NODE "pmix.dbg.dpnd";
    DEBUG_DAEMONS_PER_PROC "pmix.dbg.dpproc";
    DEBUG_STOP_ON_EXEC "pmix.dbg.exec";
    EVENT_CUSTOM_RANGE "pmix.evrange";
    EVENT_NON_DEFAULT "pmix.evnondef";
    EVENT_DO_NOT_CACHE "pmix.evnocache";
    LOG_STDOUT "pmix.log.stdout";
    LOG_STDERR "pmix.log.stderr";
    LOG_SYSLOG "pmix.log.syslog";
    LOG_LOCAL_SYSLOG "pmix.log.lsys";
    LOG_GLOBAL_SYSLOG "pmix.log.gsys";
    LOG_SYSLOG_PRI "pmix.log.syspri";
    LOG_ONCE "pmix.log.once";
    LOG_KEY "pmix.log.key";
    LOG_VAL "pmix.log.val";
    LOG_AGG "pmix.log.agg";
    ALLOC_NODE_LIST "pmix.alloc.nlist";
    ALLOC_NUM_NODES "pmix.alloc.nnodes";
    ALLOC_ID "pmix.alloc.id";
    ALLOC_REQ_ID "pmix.alloc.reqid";
    JOB_CTRL_ID "pmix.jctrl.id";
    JOB_CTRL_SIGNAL "pmix.jctrl.sig";
    JOB_CTRL_PAUSE "pmix.jctrl.pause";
    JOB_CTRL_RESUME "pmix.jctrl.resume";
    JOB_CTRL_TERMINATE "pmix.jctrl.term";
    JOB_CTRL_KILL "pmix.jctrl.kill";
    JOB_CTRL_DEFINE_PSET "pmix.jctrl.defpset";
    REGISTER_CLEANUP "pmix.reg.cleanup";
    MONITOR_ID "pmix.monitor.id";
    MONITOR_CANCEL "pmix.monitor.cancel";
    MONITOR_HEARTBEAT "pmix.monitor.mbeat";
    MONITOR_HEARTBEAT_TIME "pmix.monitor.btime";
    MONITOR_HEARTBEAT_DROPS "pmix.monitor.bdrop";
    MONITOR_FILE "pmix.monitor.fmon";
    MONITOR_FILE_SIZE "pmix.monitor.fsize";
    MONITOR_FILE_ACCESS "pmix.monitor.faccess";
    MONITOR_FILE_MODIFY "pmix.monitor.fmod";
    MONITOR_FILE_CHECK_TIME "pmix.monitor.ftime";
    MONITOR_FILE_DROPS "pmix.monitor.fdrop";
    MONITOR_PROC_RESOURCE_USAGE "pmix.monitor.presuse";
    MONITOR_NODE_RESOURCE_USAGE "pmix.monitor.ndresuse";
    MONITOR_DISK_RESOURCE_USAGE "pmix.monitor.dkresuse";
    MONITOR_NET_RESOURCE_USAGE "pmix.monitor.netresuse";
    MONITOR_RESOURCE_RATE "pmix.monitor.resrate";
    MONITOR_TARGET_PROCS "pmix.monitor.tgtproc";
    MONITOR_TARGET_PIDS "pmix.monitor.tgtpid";
    MONITOR_TARGET_NODES "pmix.monitor.tgtnode";
    MONITOR_TARGET_NODEIDS "pmix.monitor.tgtndids";
    MONITOR_TARGET_DISKS "pmix.monitor.tgtdks";
    MONITOR_TARGET_NETS "pmix.monitor.tgtnets";
    MONITOR_LOCAL_ONLY "pmix.monitor.local";
    GROUP_NOTIFY_TERMINATION "pmix.grp.notterm";
    GROUP_ASSIGN_CONTEXT_ID "pmix.grp.actxid";
    GROUP_FT_COLLECTIVE "pmix.grp.ftcoll";
    GROUP_BOOTSTRAP "pmix.grp.btstrp";
    GROUP_ADD_MEMBERS "pmix.grp.add";
    GROUP_INFO "pmix.grp.info";
    GROUP_ENDPT_DATA "pmix.grp.endpt";
}

/// `PMIX_PROC_PID`, the process id of a rank: a value that clients get, and no attribute of a request.
pub const PROC_PID: &[u8] = b"pmix.ppid";

/// Monitors of what processes, hosts, disks and networks use.
pub const RESOURCE_USAGE: [&[u8]; 4] = [
    MONITOR_PROC_RESOURCE_USAGE,
    MONITOR_NODE_RESOURCE_USAGE,
    MONITOR_DISK_RESOURCE_USAGE,
    MONITOR_NET_RESOURCE_USAGE,
];
