//! Methods whose clients send compressed vectors: DCGD, DIANA, MARINA and EF21.

use super::clients::Clients;
use super::method::{Cost, Env, Method, Part, zeros};
use super::reduced::probability;
use crate::error::{Error, Result};

/// DIANA (Mishchenko, Gorbunov, Takac and Richtarik 2019): client i sends m_i = C(grad f_i(x) - h_i); `g = h + mean m_i`, then
/// `x+ = prox(x - step g)`, `h_i += alpha m_i`, and h is the mean of all h_i. With alpha = 0 and h = 0 it is DCGD.
#[derive(Debug)]
pub struct Diana {
    clients: Clients,
    alpha: f64,
    from_gradient: bool,
    shifts: Vec<f64>,
    h: Vec<f64>,
    g: Vec<f64>,
}

impl Diana {
    /// With a share `alpha` of messages that shifts take, and shifts that start at the clients' gradients or at 0.
    pub fn new(clients: Clients, alpha: f64, from_gradient: bool) -> Result<Self> {
        if !(0.0..=1.0).contains(&alpha) {
            let expected = "from 0 to 1".into();
            return Err(Error::BadArgument { what: "alpha", expected, found: alpha.to_string() });
        }
        Ok(Diana { clients, alpha, from_gradient, shifts: Vec::new(), h: Vec::new(), g: Vec::new() })
    }

    /// DCGD (Khirirat, Feyzmahdavian and Johansson 2018): without shifts.
    pub fn without_shifts(clients: Clients) -> Self {
        Diana { clients, alpha: 0.0, from_gradient: false, shifts: Vec::new(), h: Vec::new(), g: Vec::new() }
    }

    fn has_shifts(&self) -> bool {
        self.alpha > 0.0 || self.from_gradient
    }
}

/// Room for a vector of every client, which are their gradients at `x` if asked for; `mean` becomes the mean.
fn start_shifts(
    clients: &mut Clients,
    env: &Env<'_>,
    x: &[f64],
    from_gradient: bool,
    mean: &mut [f64],
) -> Result<(Vec<f64>, Cost)> {
    let len = clients.n().checked_mul(x.len()).ok_or(crate::memory::refused::<f64>(usize::MAX, "shifts"))?;
    let mut shifts = zeros(len)?;
    let mut cost = Cost::default();
    if from_gradient {
        cost = clients.mean_grad(env, x, mean)?;
        let rows = shifts.chunks_exact_mut(x.len());
        rows.zip(clients.workers()).for_each(|(shift, worker)| shift.copy_from_slice(&worker.g));
    }
    Ok((shifts, cost))
}

/// Every client's vector takes `scale` times its message.
fn add_own(clients: &mut Clients, scale: f64, shifts: &mut [f64], d: usize) {
    for (shift, worker) in shifts.chunks_exact_mut(d).zip(clients.workers()) {
        worker.message.entries().for_each(|(j, x)| shift[j] += scale * x);
    }
}

impl Method for Diana {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.h, self.g) = (zeros(x.len())?, zeros(x.len())?);
        if !self.has_shifts() {
            return Ok(Cost::default());
        }
        let (shifts, cost) = start_shifts(&mut self.clients, env, x, self.from_gradient, &mut self.h)?;
        self.shifts = shifts;
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let shifts = self.has_shifts().then_some(&self.shifts[..]);
        let cost = self.clients.send(env, x, None, shifts)?;
        self.g.copy_from_slice(&self.h);
        self.clients.add_messages(1.0, &mut self.g)?;
        env.descend(x, &self.g, next)?;
        Ok(cost)
    }

    fn commit(&mut self) {
        if self.has_shifts() {
            let d = self.h.len();
            add_own(&mut self.clients, self.alpha, &mut self.shifts, d);
            // g - h is the mean of the messages.
            let alpha = self.alpha;
            self.h.iter_mut().zip(&self.g).for_each(|(h, g)| *h += alpha * (g - *h));
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        if self.has_shifts() { vec![("h_i", &mut self.shifts), ("h", &mut self.h)] } else { Vec::new() }
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}

/// MARINA (Gorbunov, Burlachenko, Li and Richtarik 2021): `x+ = prox(x - step g)`; then with probability p all clients send
/// their gradients and g+ is the mean, otherwise they send C(grad f_i(x+) - grad f_i(x)) and g+ is g plus the mean.
#[derive(Debug)]
pub struct Marina {
    clients: Clients,
    p: f64,
    g: Vec<f64>,
    new: Vec<f64>,
    coin: Option<bool>,
}

impl Marina {
    /// With this probability of full gradients.
    pub fn new(clients: Clients, p: f64) -> Result<Self> {
        Ok(Marina { clients, p: probability(p)?, g: Vec::new(), new: Vec::new(), coin: None })
    }
}

impl Method for Marina {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        self.clients.mean_grad(env, x, &mut self.g)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        let coin = env.coin(self.p);
        self.coin = Some(coin);
        if coin {
            return self.clients.mean_grad(env, next, &mut self.new);
        }
        let cost = self.clients.send(env, next, Some(x), None)?;
        self.new.copy_from_slice(&self.g);
        self.clients.add_messages(1.0, &mut self.new)?;
        Ok(cost)
    }

    fn commit(&mut self) {
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("g", &mut self.g)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], self.coin)
    }
}

/// EF21 (Richtarik, Sokolov and Fatkhullin 2021): `x+ = prox(x - step g)`; client i sends m_i = C(grad f_i(x+) - g_i),
/// `g_i += m_i`, and g is the mean of all g_i.
#[derive(Debug)]
pub struct Ef21 {
    clients: Clients,
    from_gradient: bool,
    shifts: Vec<f64>,
    g: Vec<f64>,
    new: Vec<f64>,
}

impl Ef21 {
    /// With g_i that start at the clients' gradients or at 0.
    pub fn new(clients: Clients, from_gradient: bool) -> Self {
        Ef21 { clients, from_gradient, shifts: Vec::new(), g: Vec::new(), new: Vec::new() }
    }
}

impl Method for Ef21 {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        let (shifts, cost) = start_shifts(&mut self.clients, env, x, self.from_gradient, &mut self.g)?;
        self.shifts = shifts;
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        let cost = self.clients.send(env, next, None, Some(&self.shifts))?;
        self.new.copy_from_slice(&self.g);
        self.clients.add_messages(1.0, &mut self.new)?;
        Ok(cost)
    }

    fn commit(&mut self) {
        let d = self.g.len();
        add_own(&mut self.clients, 1.0, &mut self.shifts, d);
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("g_i", &mut self.shifts), ("g", &mut self.g)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}
