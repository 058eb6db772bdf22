//! Training by the Omega rule in memory of the caller's: what a forward pass keeps, and gradients.

use atlas_dsl::DType;
use atlas_ops::omega::backward::check::{Named, TrainingCase};
use atlas_ops::omega::{Chunking, MemoryForm, Tokens};
use atlas_runtime::{Device, Tensor};
use std::collections::BTreeMap;

/// Memories of two layers, linear, gated, and with a norm inside.
const MEMORIES: [(MemoryForm, [usize; 3]); 4] = [
    (MemoryForm::Mlp, [8, 24, 40]),
    (MemoryForm::Linear, [16, 16, 0]),
    (MemoryForm::Gated, [8, 24, 40]),
    (MemoryForm::Normed { eps: 1e-2 }, [16, 16, 32]),
];

/// A case of two sequences and two heads, in segments of two chunks, whose loss depends on the memory after them, too.
fn case((form, memory): (MemoryForm, [usize; 3])) -> TrainingCase {
    let of = TrainingCase::new([2, 23, 2], memory, Chunking::new(4, 5));
    TrainingCase { of_memory: true, segment: Some(2), form, ..of }
}

fn upload(device: &Device, x: &Named, name: &str) -> Tensor {
    let values: Vec<f32> = x[name].values.clone();
    device.tensor_from(&values, &x[name].sizes).unwrap()
}

/// What a forward pass keeps, and gradients, in memory of the caller's are those in memory of the training's own. Another training
/// of the same sizes goes back from what was kept.
#[test]
fn memory_of_the_caller_serves_as_the_trainings_own() {
    let device = crate::device();
    for memory in MEMORIES {
        let case = case(memory);
        let x = case.inputs();
        let wanted = case.run(&device, &x).unwrap();
        let tensor = |name: &str| upload(&device, &x, name);
        let given = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"].map(tensor);
        let [q, k, v, rq, rk, alpha, theta, eta, gamma] = given.each_ref();
        let tokens = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
        let names = ["w", "w1", "w2", "w3", "s", "s1", "s2", "s3"].into_iter().filter(|name| x.contains_key(name));
        let mut state: Vec<Tensor> = names.clone().map(tensor).collect();
        let of_state = ["first", "second", "third", "fourth", "fifth", "sixth"].into_iter().take(state.len());
        let last: Vec<Tensor> = of_state.map(tensor).collect();
        let (stream, mut y, dy) = (device.default_stream(), tensor("v"), tensor("dy"));
        // NaN shows whatever a pass takes for granted.
        let nan = |shape: &[usize]| device.tensor_from(&vec![f32::NAN; shape.iter().product()], shape);
        let mut states = BTreeMap::new();
        let training = || {
            let mut training = case.training(&device).unwrap();
            training.set_norm(x.contains_key("norm").then(|| tensor("norm")));
            training
        };
        let mut first = training();
        let mut kept = first
            .kept_in(|name, shape| {
                assert_eq!(shape[0], 3, "23 tokens are 6 chunks, in segments of 2");
                let made = nan(shape)?;
                states.insert(name, made.clone());
                Ok(made)
            })
            .unwrap();
        assert_eq!(first.segments(), 3);
        assert!(names.clone().eq(kept_names(&states)), "{memory:?}");
        first.forward(&stream, &tokens, &mut state.iter_mut().collect::<Vec<_>>(), &mut y, &mut kept).unwrap();
        drop(kept);

        let mut second = training();
        let kept = second.kept_in(|name, _| Ok(states[name].clone())).unwrap();
        let mut rooms = Vec::new();
        let mut gradients = second
            .gradients_in(|name, shape| {
                rooms.push((name.to_owned(), nan(shape)?));
                Ok(rooms[rooms.len() - 1].1.clone())
            })
            .unwrap();
        second.backward(&stream, &tokens, &kept, &dy, Some(&last.iter().collect::<Vec<_>>()), &mut gradients).unwrap();
        for (name, wanted) in &wanted {
            let name = if *name == "norm" { "dnorm_sum".to_owned() } else { format!("d{name}") };
            let found = &rooms.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name}")).1;
            let found =
                if found.rank() > 2 && found.shape()[1] == 24 { found.slice(1, 0..23).unwrap() } else { found.clone() };
            assert_eq!(&found.to_f64_vec().unwrap(), wanted, "{name} of {memory:?}");
        }
        // A norm is of the passes that follow, until it is taken away.
        if x.contains_key("norm") {
            second.set_norm(None);
            let refused = second.backward(&stream, &tokens, &kept, &dy, None, &mut gradients).unwrap_err().to_string();
            assert!(refused.contains("`norm`"), "{refused}");
        }
    }
}

fn kept_names<'t>(states: &'t BTreeMap<&'static str, Tensor>) -> impl Iterator<Item = &'static str> + 't {
    // Weights stand before momenta.
    let of = |letter: char| states.keys().copied().filter(move |name| name.starts_with(letter));
    of('w').chain(of('s'))
}

#[test]
fn memory_of_the_caller_that_does_not_fit_is_refused() {
    let device = crate::device();
    let case = case(MEMORIES[0]);
    let training = case.training(&device).unwrap();
    let zeros = |dtype: DType, shape: &[usize]| Tensor::zeros(&device, dtype, shape);
    let one = zeros(DType::F32, &[100_000]).unwrap();
    let longer = |shape: &[usize]| zeros(DType::F32, &[&[shape[0] + 1], &shape[1..]].concat());
    let shared = |shape: &[usize]| one.slice(0, 0..shape.iter().product())?.reshape(shape);
    let turned = |shape: &[usize]| {
        let [a, b, c, d, e] = shape.try_into().unwrap();
        zeros(DType::F32, &[a, b, c, e, d])?.transpose(3, 4)
    };
    type Make<'m> = &'m dyn Fn(&[usize]) -> atlas_runtime::Result<Tensor>;
    let kept: [(Make<'_>, &str); 4] =
        [(&longer, "ATL604"), (&|shape| zeros(DType::Bf16, shape), "ATL605"), (&shared, "ATL609"), (&turned, "ATL")];
    for (make, code) in kept {
        let refused =
            training.kept_in(
                |name, shape| if name == "w2" || code == "ATL609" { make(shape) } else { zeros(DType::F32, shape) },
            );
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(code) && (code == "ATL" || refused.contains("`w2`")), "{refused}");
    }
    // All segments in one place, and segments that begin inside the one before.
    let repeated = |shape: &[usize]| zeros(DType::F32, &[&[1], &shape[1..]].concat())?.expand(shape);
    let inside = |shape: &[usize]| {
        let strides: Vec<usize> = (1..=shape.len()).map(|from| shape[from..].iter().product()).collect();
        one.as_strided(shape, [&[strides[0] / 2], &strides[1..]].concat(), 0)
    };
    for make in [&repeated as Make<'_>, &inside] {
        let made = training.kept_in(|name, shape| if name == "s1" { make(shape) } else { zeros(DType::F32, shape) });
        let refused = made.unwrap_err().to_string();
        assert!(refused.contains("ATL609") && refused.contains("`s1`"), "{refused}");
    }
    for (make, code) in &kept[..3] {
        for wrong in ["dgamma", "ds1"] {
            let made = training.gradients_in(|name, shape| {
                if name == wrong || *code == "ATL609" && name == "dk" { make(shape) } else { zeros(DType::F32, shape) }
            });
            let refused = made.unwrap_err().to_string();
            assert!(refused.contains(code) && refused.contains(&format!("`{wrong}`")), "{refused}");
        }
    }
    // What is kept stands apart from what a pass is given, and from its gradients.
    let x = case.inputs();
    let tensor = |name: &str| upload(&device, &x, name);
    let given = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"].map(tensor);
    let [q, k, v, rq, rk, alpha, theta, eta, gamma] = given.each_ref();
    let tokens = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
    let mut memory = ["w1", "w2", "s1", "s2"].map(tensor);
    let (stream, mut y, dy) = (device.default_stream(), tensor("v"), tensor("dy"));
    let mut training = training;
    let whole = zeros(DType::F32, &[3, 2, 2, 24, 40]).unwrap();
    let mut kept = training
        .kept_in(|name, shape| if name == "w1" { Ok(whole.clone()) } else { zeros(DType::F32, shape) })
        .unwrap();
    memory[0] = whole.slice(0, 0..1).unwrap().reshape([2, 2, 24, 40]).unwrap();
    let refused =
        training.forward(&stream, &tokens, &mut memory.each_mut(), &mut y, &mut kept).unwrap_err().to_string();
    assert!(refused.contains("ATL609") && refused.contains("`w1`"), "{refused}");
    let mut gradients = training
        .gradients_in(|name, shape| if name == "dw1" { Ok(memory[0].clone()) } else { zeros(DType::F32, shape) })
        .unwrap();
    let refused = training.backward(&stream, &tokens, &kept, &dy, None, &mut gradients).unwrap_err().to_string();
    assert!(refused.contains("ATL609") && refused.contains("`w1`"), "{refused}");
    memory[0] = tensor("w1");
    training.forward(&stream, &tokens, &mut memory.each_mut(), &mut y, &mut kept).unwrap();
}
