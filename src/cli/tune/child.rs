//! The parent's side of a worker: requests with a time limit, and a new process where the old one hung or died.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How long one request may take, in seconds, unless the environment says otherwise.
const LIMIT: u64 = 60;
/// How many times that a problem may take to be made.
const OPENING: u32 = 10;
const LIMIT_VARIABLE: &str = "ATLAS_TUNE_LIMIT";

/// A worker process; none until it is asked.
pub(super) struct Worker {
    args: Vec<String>,
    limit: Duration,
    running: Option<Running>,
}

struct Running {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Value>,
}

/// What came of a request.
pub(super) enum Answer {
    Done(Value),
    /// The worker said no; it lives.
    Refused(String),
    /// It hung or died, and is gone with all it held.
    Lost(String),
}

impl Worker {
    pub(super) fn new(args: Vec<String>) -> Worker {
        let limit = std::env::var(LIMIT_VARIABLE).ok().and_then(|t| t.parse().ok()).unwrap_or(LIMIT);
        Worker { args, limit: Duration::from_secs(limit), running: None }
    }

    /// Asks, starting the process if there is none.
    ///
    /// # Errors
    /// If no process can be started.
    pub(super) fn ask(&mut self, request: &Value) -> Result<Answer> {
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.args)?,
        };
        let running = self.running.insert(running);
        if let Err(e) = writeln!(running.input, "{request}").and_then(|()| running.input.flush()) {
            return Ok(Answer::Lost(self.end(&e.to_string())));
        }
        // Tensors are made on the host, and so is what they should give.
        let limit = if request["verb"] == "open" { OPENING * self.limit } else { self.limit };
        match running.answers.recv_timeout(limit) {
            Ok(answer) => Ok(match answer["error"].as_str() {
                Some(error) if answer["ends"] == true => Answer::Lost(self.end(error)),
                Some(error) => Answer::Refused(error.to_owned()),
                None => Answer::Done(answer),
            }),
            Err(RecvTimeoutError::Timeout) => {
                Ok(Answer::Lost(self.end(&format!("it gave no answer within {} s", limit.as_secs()))))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(Answer::Lost(self.end("its process ended"))),
        }
    }

    /// Ends the process, and says how it ended.
    fn end(&mut self, why: &str) -> String {
        let Some(mut running) = self.running.take() else { return why.to_owned() };
        // One that is stuck in the driver may not be ended; nothing more can be done about it.
        let _ = running.child.kill();
        for _ in 0..100 {
            match running.child.try_wait() {
                Ok(Some(status)) => return format!("{why} ({status})"),
                Ok(None) => std::thread::sleep(Duration::from_millis(50)),
                Err(_) => break,
            }
        }
        why.to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end("");
    }
}

impl Running {
    fn start(args: &[String]) -> Result<Running> {
        let exe = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(exe)
            .arg("tune-worker")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start a worker")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker has no pipes");
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The program may have printed something of its own before it came to this.
                let Ok(answer @ Value::Object(_)) = serde_json::from_str(&line) else { continue };
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, input, answers })
    }
}

/// Workers that build, each in a thread of its own.
pub(super) struct Pool {
    tasks: mpsc::Sender<(Value, mpsc::Sender<Result<Answer>>)>,
}

impl Pool {
    pub(super) fn new(workers: usize, args: &[String]) -> Pool {
        let (tasks, queue) = channel::<(Value, mpsc::Sender<Result<Answer>>)>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..workers {
            let (queue, mut worker) = (queue.clone(), Worker::new(args.to_vec()));
            std::thread::spawn(move || {
                loop {
                    let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((request, reply)) = task else { return };
                    // Who asked may have left.
                    let _ = reply.send(worker.ask(&request));
                }
            });
        }
        Pool { tasks }
    }

    /// The answers to some requests, in their order, worked on at once.
    pub(super) fn ask_all(&self, requests: Vec<Value>) -> Result<Vec<Answer>> {
        let replies: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let (reply, answer) = channel();
                // If all workers are gone, `answer` says so below.
                let _ = self.tasks.send((request, reply));
                answer
            })
            .collect();
        replies.into_iter().map(|answer| answer.recv().context("no worker is left")?).collect()
    }
}
