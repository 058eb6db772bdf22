//! Compares the gradient of a whole model with differences of its losses.

use super::model::Model;
use super::tasks::Batch;
use std::error::Error;

/// Compares, for each weight by itself, the gradient `g` with a central difference along `u = g / |g|`:
///
/// `(loss(w + e u) - loss(w - e u)) / 2 e` is `|g|`, but for two errors. The curvature's is proportional to `e^2`, so the difference
/// over `2 e` tells how large it is. The rounding's is that of the two losses, which are sums of about as many f32 terms as a row
/// of a product has.
///
/// # Errors
/// If some weight's gradient is off by more than both. Also if a gradient that is planted wrong, by `plant` of itself, passes.
pub(crate) fn check(model: &mut Model, batch: &Batch, plant: f64) -> Result<(), Box<dyn Error>> {
    let loss = model.loss(batch)?;
    model.backward()?;
    let (mut weights, grads) = model.parameters.all()?;
    let (start, grads) = (weights.to_vec::<f32>()?, grads.to_vec::<f32>()?);
    let rounding = loss * f64::from(f32::EPSILON) * (model.sizes.width as f64).sqrt();
    println!("the gradient, by its length and by differences, weight by weight:");
    for (name, first, count) in model.parameters.list.clone() {
        let g = &grads[first..first + count];
        let length = g.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let mut difference = |e: f64| -> Result<f64, Box<dyn Error>> {
            let mut losses = [0.0; 2];
            for (loss, sign) in losses.iter_mut().zip([1.0, -1.0]) {
                let mut moved = start.clone();
                for (w, g) in moved[first..first + count].iter_mut().zip(g) {
                    *w += (sign * e * f64::from(*g) / length) as f32;
                }
                weights.copy_from(&moved)?;
                *loss = model.loss(batch)?;
            }
            Ok((losses[0] - losses[1]) / (2.0 * e))
        };
        let step = (0.003 / length).min(0.05);
        let (near, far) = (difference(step)?, difference(2.0 * step)?);
        let tolerance = (far - near).abs() + rounding / step;
        println!("  {name:18} {length:.6} {near:.6} (within {tolerance:.6})");
        if (near - length).abs() > tolerance {
            return Err(format!("the gradient of {name} is wrong").into());
        }
        if (near - length * (1.0 + plant)).abs() <= tolerance {
            return Err(format!("a wrong gradient of {name} would pass").into());
        }
    }
    weights.copy_from(&start)?;
    Ok(())
}
