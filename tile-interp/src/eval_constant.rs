//! Values that come from no tensor: constants, counters, sizes, scalar parameters and tables.

use crate::error::InterpError;
use crate::eval::Program;
use crate::ring::Word;
use crate::tile::{Data, Tile};
use crate::{Arg, Mode, Scalar};
use atlas_dsl::{DType, Dim, Param, Table, TileType, Value};

impl Program<'_> {
    pub(crate) fn splat(&self, value: f64, dtype: DType, shape: &[u32]) -> Tile {
        let ty = TileType::new(dtype, shape);
        let data = Data::filled(dtype, self.launch.mode, ty.elements() as usize, value);
        Tile::full(ty, data)
    }

    pub(crate) fn iota(&self, shape: &[u32], axis: u8) -> Tile {
        let axis = usize::from(axis).min(shape.len());
        let extent = shape.get(axis).copied().unwrap_or(1) as i32;
        let inner: usize = shape.iter().skip(axis + 1).map(|&e| e as usize).product();
        let outer: usize = shape[..axis].iter().map(|&e| e as usize).product();
        let mut data = Vec::with_capacity(outer * extent as usize * inner);
        for _ in 0..outer {
            for i in 0..extent {
                data.extend(std::iter::repeat_n(i, inner));
            }
        }
        Tile::full(TileType::new(DType::I32, shape), Data::I32(data))
    }

    fn size_of(&self, dim: Dim) -> u64 {
        self.launch.dims[dim.as_u32() as usize]
    }

    pub(crate) fn dim_size(&self, dim: Dim) -> Tile {
        Tile::index(self.size_of(dim) as i32)
    }

    pub(crate) fn dim_tiles(&self, dim: Dim, size: u32) -> Tile {
        Tile::index(self.size_of(dim).div_ceil(u64::from(size.max(1))) as i32)
    }

    pub(crate) fn scalar_param(&self, param: Param) -> Result<Tile, InterpError> {
        let Some(Arg::Scalar(scalar)) = self.launch.args.get(param.as_u32() as usize) else {
            return Err(InterpError::kernel(format!("{param} is no scalar")));
        };
        let atlas_dsl::ir::ParamKind::Scalar { dtype } = self.launch.kernel.params[param].kind else {
            return Err(InterpError::kernel(format!("{param} is no scalar")));
        };
        let ty = TileType::scalar(dtype);
        Ok(match *scalar {
            Scalar::I32(x) if dtype == DType::I64 => Tile::full(ty, Data::I64(vec![i64::from(x)])),
            Scalar::I64(x) => Tile::full(ty, Data::I64(vec![x])),
            // Through f64 a NaN would lose its bits.
            Scalar::F32(x) if self.launch.mode == Mode::Ring && dtype == DType::F32 => {
                Tile::full(ty, Data::Ring(vec![Word(x.to_bits())]))
            }
            Scalar::I32(x) => self.splat(f64::from(x), dtype, &[]),
            Scalar::F32(x) => self.splat(f64::from(x), dtype, &[]),
            Scalar::F64(x) => self.splat(x, dtype, &[]),
        })
    }

    pub(crate) fn table_get(&self, table: Table, indices: &[Value]) -> Result<Tile, InterpError> {
        let data = &self.launch.kernel.tables[table];
        let mut at = 0usize;
        for (&index, &extent) in indices.iter().zip(&data.shape) {
            let i = self.index(index)?;
            // Outside a table stands 0, as outside a tensor.
            if i < 0 || i as u32 >= extent {
                return Ok(self.splat(0.0, DType::F32, &[]));
            }
            at = at * extent as usize + i as usize;
        }
        let Some(&x) = data.values.get(at) else {
            return Err(InterpError::kernel(format!("table `{}` has no element {at}", data.name)));
        };
        Ok(self.splat(f64::from(x), DType::F32, &[]))
    }
}
