//! Special registers by name.

use crate::program::Special;

/// A special register and its width in bits.
pub(super) fn special(name: &str) -> Option<(Special, u32)> {
    if let Some((base, axis)) = name.rsplit_once('.') {
        let axis = match axis {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return None,
        };
        let make = match base {
            "%tid" => Special::Tid,
            "%ntid" => Special::Ntid,
            "%ctaid" => Special::Ctaid,
            "%nctaid" => Special::Nctaid,
            "%clusterid" => Special::ClusterId,
            "%nclusterid" => Special::NclusterId,
            "%cluster_ctaid" => Special::ClusterCtaid,
            "%cluster_nctaid" => Special::ClusterNctaid,
            _ => return None,
        };
        return Some((make(axis), 32));
    }
    Some(match name {
        "%laneid" => (Special::LaneId, 32),
        "%warpid" => (Special::WarpId, 32),
        "%nwarpid" => (Special::NwarpId, 32),
        "%smid" => (Special::SmId, 32),
        "%nsmid" => (Special::NsmId, 32),
        "%gridid" => (Special::GridId, 64),
        "%lanemask_eq" => (Special::LaneMaskEq, 32),
        "%lanemask_le" => (Special::LaneMaskLe, 32),
        "%lanemask_lt" => (Special::LaneMaskLt, 32),
        "%lanemask_ge" => (Special::LaneMaskGe, 32),
        "%lanemask_gt" => (Special::LaneMaskGt, 32),
        "%clock" => (Special::Clock, 32),
        "%clock64" => (Special::Clock64, 64),
        "%globaltimer" => (Special::GlobalTimer, 64),
        "%cluster_ctarank" => (Special::ClusterCtarank, 32),
        "%cluster_nctarank" => (Special::ClusterNctarank, 32),
        "%dynamic_smem_size" => (Special::DynamicSmemSize, 32),
        "%total_smem_size" => (Special::TotalSmemSize, 32),
        _ => return None,
    })
}
