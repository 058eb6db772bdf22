//! The parent's side of a worker: requests with a time limit, and a new process if the old one hung or died.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The time limit for one request in seconds, unless the environment sets another.
const LIMIT: u64 = 60;
/// Making a problem may take this many times the limit.
const OPENING: u32 = 10;
const LIMIT_VARIABLE: &str = "ATLAS_TUNE_LIMIT";
/// The text before an answer, anywhere in a line, because the program may print text of its own.
const MARK: &str = "atlas-tune-worker answers ";

/// A worker process, which is started by the first request.
pub(super) struct WorkerProcess {
    args: Vec<String>,
    limit: Duration,
    running: Option<Running>,
}

struct Running {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Value>,
    /// The last line that it wrote to stderr.
    said: Arc<Mutex<String>>,
    /// The number of the last request.
    number: u64,
}

/// The result of a request.
pub(super) enum Answer {
    Done(Value),
    /// The worker refused; it is still alive.
    Refused(String),
    /// The worker hung or died, and everything that it held is lost.
    Lost(String),
}

impl WorkerProcess {
    pub(super) fn new(args: Vec<String>) -> WorkerProcess {
        let limit = std::env::var(LIMIT_VARIABLE).ok().and_then(|t| t.parse().ok()).unwrap_or(LIMIT);
        WorkerProcess { args, limit: Duration::from_secs(limit), running: None }
    }

    /// Sends a request, starting the process if there is none.
    ///
    /// # Errors
    /// If no process can be started.
    pub(super) fn ask(&mut self, request: &Value) -> Result<Answer> {
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.args)?,
        };
        let running = self.running.insert(running);
        running.number += 1;
        let (number, mut request) = (running.number, request.clone());
        request["number"] = json!(number);
        if let Err(e) = writeln!(running.input, "{request}").and_then(|()| running.input.flush()) {
            return Ok(Answer::Lost(self.end(&format!("its process ended: {e}"))));
        }
        // Tensors and their expected results are made on the host, which takes longer.
        let limit = if request["verb"] == "open" { self.limit.saturating_mul(OPENING) } else { self.limit };
        let start = Instant::now();
        loop {
            match running.answers.recv_timeout(limit.saturating_sub(start.elapsed())) {
                Ok(answer) if answer["number"] != number => {}
                Ok(answer) => {
                    return Ok(match answer["error"].as_str() {
                        Some(error) if answer["ends"] == true => Answer::Lost(self.end(error)),
                        Some(error) => Answer::Refused(error.to_owned()),
                        None => Answer::Done(answer),
                    });
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(Answer::Lost(self.end(&format!("it gave no answer within {} s", limit.as_secs()))));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Answer::Lost(self.end("its process ended"))),
            }
        }
    }

    /// Ends the process, and returns how it ended.
    fn end(&mut self, why: &str) -> String {
        let Some(mut running) = self.running.take() else { return why.to_owned() };
        // A process that is stuck in the driver may not end, and nothing more can be done about it.
        let _ = running.child.kill();
        let said = || running.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for _ in 0..100 {
            match running.child.try_wait() {
                Ok(Some(status)) => {
                    let said = said();
                    let said = if said.is_empty() { said } else { format!(": {said}") };
                    return format!("{why} ({status}){said}");
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(50)),
                Err(_) => break,
            }
        }
        why.to_owned()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.end("");
    }
}

impl Running {
    fn start(args: &[String]) -> Result<Running> {
        let exe = std::env::current_exe().context("cannot find this program")?;
        // If the program is rebuilt while it runs, its file's old name no longer exists.
        if !exe.exists() {
            bail!("this program was replaced while it ran, and starts no more workers: run it again");
        }
        let mut child = Command::new(exe)
            .arg("tune-worker")
            .args(args)
            // Its launches are not part of the user's program.
            .env_remove(atlas_runtime::sizes::SIZES_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            bail!("a worker has no pipes");
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in lines(output) {
                if let Some(answer) = answer_in(&line)
                    && sender.send(answer).is_err()
                {
                    break;
                }
            }
        });
        let said: Arc<Mutex<String>> = Arc::default();
        let last = said.clone();
        std::thread::spawn(move || {
            for line in lines(errors).filter(|line| !line.trim().is_empty()) {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
            }
        });
        Ok(Running { child, input, answers, said, number: 0 })
    }
}

/// Lines of arbitrary bytes, as text.
fn lines(of: impl std::io::Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(of).split(b'\n').map_while(|line| line.ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// An answer in the form that a worker prints.
pub(super) fn line_of(answer: &Value) -> String {
    format!("{MARK}{answer}")
}

/// The answer in a line, after any other text that the program printed.
fn answer_in(line: &str) -> Option<Value> {
    let (_, answer) = line.split_once(MARK)?;
    serde_json::from_str(answer).ok().filter(Value::is_object)
}

/// Workers that build kernels, each with a thread of its own.
pub(super) struct Pool {
    tasks: mpsc::Sender<(Value, mpsc::Sender<Result<Answer>>)>,
}

impl Pool {
    pub(super) fn new(workers: usize, args: &[String]) -> Pool {
        let (tasks, queue) = channel::<(Value, mpsc::Sender<Result<Answer>>)>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..workers {
            let (queue, mut worker) = (queue.clone(), WorkerProcess::new(args.to_vec()));
            std::thread::spawn(move || {
                loop {
                    let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((request, reply)) = task else { return };
                    // The receiver may have stopped waiting.
                    let _ = reply.send(worker.ask(&request));
                }
            });
        }
        Pool { tasks }
    }

    /// The answers to several requests, in their order. The requests run concurrently.
    pub(super) fn ask_all(&self, requests: Vec<Value>) -> Result<Vec<Answer>> {
        let replies: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let (reply, answer) = channel();
                // If all workers are gone, `answer` reports it below.
                let _ = self.tasks.send((request, reply));
                answer
            })
            .collect();
        replies.into_iter().map(|answer| answer.recv().context("no worker is left")?).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_behind_what_a_program_prints() {
        let answer = json!({ "us": [1.5], "number": 3 });
        for before in ["", "my tools 1.0 ", "{\"number\": 3}"] {
            assert_eq!(answer_in(&format!("{before}{}", line_of(&answer))), Some(answer.clone()));
        }
        assert_eq!(answer_in("{\"us\": [2.0], \"number\": 3}"), None);
    }
}
