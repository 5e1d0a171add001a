//! GPUs of ranks: the variables that show each rank its own.

use std::ffi::{CString, OsString};

use super::error::LaunchError;

/// Variables that list visible devices, by their programming interface.
pub(super) const VARIABLES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
/// AMD's variable for the layer below HIP. HIP counts the devices that it leaves.
const ROCR: &str = "ROCR_VISIBLE_DEVICES";

/// Returns the variables of each rank on this machine, which has `ranks` of them with `each` GPUs.
///
/// A list in the environment `env` of the program is the choice of the user or of the resource manager: ranks get parts
/// of it. Without a list, GPUs are counted from 0. `present` is the number of GPUs by interface, where it is known.
pub(super) fn variables(
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
    let mut variables = Vec::new();
    for name in VARIABLES {
        let below = (name == VARIABLES[1]).then(|| value(ROCR)).flatten();
        let listed = value(name).or_else(|| below.map(|list| numbers(list.len() as u32)));
        let available = match &listed {
            Some(list) => Some(list.iter().filter(|id| !id.is_empty()).count() as u32),
            None => present(name),
        };
        if let Some(available) = available.filter(|&available| available < needed) {
            return Err(LaunchError::FewGpus { ranks, each, available, name });
        }
        let list = listed.unwrap_or_else(|| numbers(needed));
        let of_rank = |gpus: &[String]| CString::new(format!("{name}={}", gpus.join(",")));
        let texts: Result<_, _> = list.chunks(each as usize).take(ranks as usize).map(of_rank).collect();
        variables.push(texts.map_err(|_| LaunchError::Nul { what: "an environment variable" })?);
    }
    Ok(variables)
}

/// Number of GPUs of an interface on this machine, where the system shows them.
pub(super) fn count(name: &str) -> Option<u32> {
    if name != VARIABLES[0] {
        return None;
    }
    let files = std::fs::read_dir("/dev").ok()?.filter_map(Result::ok);
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
    };
    let gpus = files.filter(|file| file.file_name().to_str().is_some_and(is_gpu)).count() as u32;
    // Without any, ranks may use GPUs of another maker.
    Some(gpus).filter(|&gpus| gpus > 0)
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
}
