//! GPUs of ranks: the variables that show each rank its own.

use std::ffi::{CString, OsString};
use std::fs;

use crate::LaunchError;

/// Variables that list visible devices, by their programming interface.
pub(crate) const VARIABLES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
/// AMD's variable for the layer below HIP. HIP counts the devices that it leaves.
const ROCR: &str = "ROCR_VISIBLE_DEVICES";

/// Returns the variables of each rank on this machine, which has `ranks` of them with `each` GPUs.
///
/// A list in the environment `env` of the program is the choice of the user or of the resource manager: ranks get parts
/// of it. Without a list, GPUs are counted from 0. `present` is the number of GPUs by interface, where it is known. The GPUs of
/// one interface suffice: a machine may have a small GPU of another maker.
pub(crate) fn variables(
    env: &[(OsString, OsString)],
    ranks: u32,
    each: u32,
    present: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<Vec<CString>>, LaunchError> {
    let value = |name: &str| {
        let text = env.iter().find(|(known, _)| known == name).map(|(_, value)| value.to_string_lossy());
        text.map(|text| text.split(',').map(|id| id.trim().to_owned()).collect::<Vec<String>>())
    };
    let numbers = |count: u32| (0..count).map(|gpu| gpu.to_string()).collect::<Vec<String>>();
    let needed = ranks.saturating_mul(each);
    let list = |name: &str| {
        let below = (name == VARIABLES[1]).then(|| value(ROCR)).flatten();
        value(name).or_else(|| below.map(|list| numbers(list.len() as u32)))
    };
    let lists = VARIABLES.map(|name| (name, list(name)));
    let has_list = lists.iter().any(|(_, list)| list.is_some());
    let counted: Vec<(u32, &str)> = if has_list {
        let of_list = |list: &[String]| list.iter().filter(|id| !id.is_empty()).count() as u32;
        lists.iter().filter_map(|(name, list)| Some((of_list(list.as_ref()?), *name))).collect()
    } else {
        // Without any, ranks may use GPUs that the system does not show.
        VARIABLES.iter().filter_map(|name| Some((present(name)?, *name))).max().into_iter().collect()
    };
    if let Some(&(available, name)) = counted.iter().find(|&&(available, _)| available < needed) {
        return Err(LaunchError::FewGpus { ranks, each, available, name });
    }
    let mut variables = Vec::new();
    for (name, list) in lists {
        let list = list.unwrap_or_else(|| numbers(needed));
        let of_rank = |gpus: &[String]| CString::new(format!("{name}={}", gpus.join(",")));
        let texts: Result<_, _> = list.chunks(each as usize).take(ranks as usize).map(of_rank).collect();
        variables.push(texts.map_err(|_| LaunchError::Nul { what: "an environment variable" })?);
    }
    Ok(variables)
}

/// Number of GPUs of an interface on this machine, where the system shows them.
pub(crate) fn count(name: &str) -> Option<u32> {
    let list = |folder: &str| -> Vec<String> {
        let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        files.filter_map(|file| file.file_name().into_string().ok()).collect()
    };
    let gpus = match VARIABLES.iter().position(|known| *known == name)? {
        0 => count_nvidia(list),
        1 => count_amd(list, |file| fs::read_to_string(file).ok()),
        _ => count_intel(list, |file| fs::read_to_string(file).ok()),
    };
    Some(gpus).filter(|&gpus| gpus > 0)
}

/// Devices of NVIDIA's driver.
fn count_nvidia(list: impl Fn(&str) -> Vec<String>) -> u32 {
    count_numbered(&list("/dev"), "nvidia")
}

/// Nodes of AMD's compute driver with vector units. Processors are nodes without. A node that a container lacks cannot be read.
fn count_amd(list: impl Fn(&str) -> Vec<String>, read: impl Fn(&str) -> Option<String>) -> u32 {
    const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
    let has_units = |node: &String| {
        let properties = read(&format!("{NODES}/{node}/properties")).unwrap_or_default();
        let units = properties.lines().find_map(|line| line.strip_prefix("simd_count "));
        units.and_then(|units| units.trim().parse().ok()).is_some_and(|units: u32| units > 0)
    };
    list(NODES).iter().filter(|node| has_units(node)).count() as u32
}

/// Tiles of Intel's GPUs: Level Zero shows each as a device of its own by default. Those of the driver xe are folders of the
/// device, those of i915 folders of its card, which also holds media engines.
fn count_intel(list: impl Fn(&str) -> Vec<String>, read: impl Fn(&str) -> Option<String>) -> u32 {
    const DEVICES: &str = "/sys/class/drm";
    let tiles = |name: &String| {
        let device = format!("{DEVICES}/{name}/device");
        let vendor = read(&format!("{device}/vendor")).unwrap_or_default();
        if !name.starts_with("renderD") || vendor.trim() != "0x8086" {
            return 0;
        }
        let cards = list(&format!("{device}/drm"));
        let of_card = |card: &String| count_numbered(&list(&format!("{device}/drm/{card}/gt")), "gt");
        let of_cards = cards.iter().map(of_card).max().unwrap_or(0);
        of_cards.max(count_numbered(&list(&device), "tile")).max(1)
    };
    list(DEVICES).iter().map(tiles).sum()
}

/// Number of names that are `prefix` and a number.
fn count_numbered(names: &[String], prefix: &str) -> u32 {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    names.iter().filter(|name| name.strip_prefix(prefix).is_some_and(is_number)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ranks(env: &[(&str, &str)], ranks: u32, each: u32) -> Result<Vec<Vec<String>>, LaunchError> {
        let env: Vec<_> =
            env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        let variables = variables(&env, ranks, each, |_| None)?;
        let text = |text: &CString| text.to_str().unwrap().to_owned();
        Ok(variables.iter().map(|ranks| ranks.iter().map(text).collect()).collect())
    }

    #[test]
    fn ranks_get_gpus_one_after_another() {
        let variables = of_ranks(&[], 2, 2).unwrap();
        assert_eq!(variables[0], ["CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=2,3"]);
        assert_eq!(variables[1], ["HIP_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=2,3"]);
        assert_eq!(variables[2], ["ZE_AFFINITY_MASK=0,1", "ZE_AFFINITY_MASK=2,3"]);
    }

    #[test]
    fn a_list_of_the_user_is_divided() {
        let outer = [("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b"), ("ROCR_VISIBLE_DEVICES", "5,7,9")];
        let variables = of_ranks(&outer, 2, 1).unwrap();
        assert_eq!(variables[0], ["CUDA_VISIBLE_DEVICES=GPU-a", "CUDA_VISIBLE_DEVICES=GPU-b"]);
        assert_eq!(variables[1], ["HIP_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1"]);
        let error = of_ranks(&outer, 3, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3 ranks with 1 GPU each need 3 GPUs, and CUDA_VISIBLE_DEVICES has 2 on this machine"
        );
        assert!(of_ranks(&[("ZE_AFFINITY_MASK", "")], 1, 1).is_err());
    }

    #[test]
    fn more_gpus_than_the_machine_has_are_refused() {
        let present = |name: &str| (name == VARIABLES[0]).then_some(3);
        assert!(variables(&[], 3, 1, present).is_ok());
        assert!(variables(&[], 2, 2, present).is_err());
    }

    #[test]
    fn gpus_of_one_maker_suffice() {
        let present = |name: &str| Some(if name == VARIABLES[1] { 4 } else { 1 });
        assert!(variables(&[], 4, 1, present).is_ok());
        let error = variables(&[], 5, 1, present).unwrap_err();
        assert!(error.to_string().contains("HIP_VISIBLE_DEVICES has 4"), "{error}");
        // A list of the user counts, and not the rest of the machine.
        let list = [("CUDA_VISIBLE_DEVICES".into(), "0,1,2,3,4".into())];
        assert!(variables(&list, 5, 1, present).is_ok());
    }

    /// Files with their contents, and their folders.
    struct Files(&'static [(&'static str, &'static str)]);

    impl Files {
        fn list(&self, folder: &str) -> Vec<String> {
            let name = |(path, _): &(&str, &str)| {
                let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
                rest.split('/').next().map(str::to_owned)
            };
            let mut names: Vec<String> = self.0.iter().filter_map(name).collect();
            names.dedup();
            names
        }

        fn read(&self, file: &str) -> Option<String> {
            self.0.iter().find(|(path, _)| *path == file).map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn gpus_of_nvidia_are_numbered_devices() {
        let files = Files(&[
            ("/dev/nvidia0", ""),
            ("/dev/nvidia1", ""),
            ("/dev/nvidiactl", ""),
            ("/dev/nvidia-caps/c", ""),
        ]);
        assert_eq!(count_nvidia(|folder| files.list(folder)), 2);
    }

    #[test]
    fn gpus_of_amd_have_vector_units() {
        let files = Files(&[
            ("/sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n"),
            (
                "/sys/class/kfd/kfd/topology/nodes/1/properties",
                "cpu_cores_count 0\nsimd_count 440\nmax_waves_per_simd 8\n",
            ),
            ("/sys/class/kfd/kfd/topology/nodes/2/properties", "cpu_cores_count 0\nsimd_count 440\n"),
            // A container has no access to this one.
            ("/sys/class/kfd/kfd/topology/nodes/3/properties", ""),
        ]);
        assert_eq!(count_amd(|folder| files.list(folder), |file| files.read(file)), 2);
    }

    #[test]
    fn gpus_of_intel_are_tiles() {
        let files = Files(&[
            ("/sys/class/drm/card0/device/vendor", "0x8086\n"),
            // Two tiles under xe.
            ("/sys/class/drm/renderD128/device/vendor", "0x8086\n"),
            ("/sys/class/drm/renderD128/device/tile0/gt0/id", "0"),
            ("/sys/class/drm/renderD128/device/tile1/gt0/id", "1"),
            // Two tiles under i915.
            ("/sys/class/drm/renderD129/device/vendor", "0x8086\n"),
            ("/sys/class/drm/renderD129/device/drm/card1/gt/gt0/id", "0"),
            ("/sys/class/drm/renderD129/device/drm/card1/gt/gt1/id", "1"),
            ("/sys/class/drm/renderD129/device/drm/renderD129/dev", "226:129"),
            // One of an older kernel, and one of another maker.
            ("/sys/class/drm/renderD130/device/vendor", "0x8086\n"),
            ("/sys/class/drm/renderD131/device/vendor", "0x1002\n"),
        ]);
        assert_eq!(count_intel(|folder| files.list(folder), |file| files.read(file)), 5);
    }
}
