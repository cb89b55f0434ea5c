"""A laser wakefield with tracked electrons, run by FBPIC: python wakefield.py FOLDER."""

import sys

import numpy
from fbpic.lpa_utils.laser import add_laser
from fbpic.main import Simulation
from fbpic.openpmd_diag import ParticleDiagnostic
from scipy.constants import c, e, m_e, micron

CELLS = 400
BEGIN, END, RADIUS = -22 * micron, 4 * micron, 14 * micron
STEPS, PERIOD = 1200, 100


def density(z, r):
    """A plasma that begins behind the first window. Electrons are trapped where its density falls."""
    return numpy.interp(z, [4 * micron, 10 * micron, 18 * micron, 24 * micron], [0, 2, 2, 1])


numpy.random.seed(17)
simulation = Simulation(
    CELLS, END, 24, RADIUS, 2, (END - BEGIN) / CELLS / c,
    zmin=BEGIN, n_order=32, n_damp={"z": 32, "r": 16}, boundaries={"z": "open", "r": "reflective"},
)  # fmt: skip
electrons = simulation.add_new_species(
    -e, m_e, n=4e24, dens_func=density, p_zmin=4 * micron, p_zmax=1e-3, p_rmax=10 * micron, p_nz=1, p_nr=1, p_nt=4
)
electrons.track(simulation.comm)
add_laser(simulation, a0=4, w0=5 * micron, ctau=2 * micron, z0=-4 * micron, zf=20 * micron)
simulation.set_moving_window(v=c)
simulation.diags = [
    ParticleDiagnostic(period=PERIOD, species={"electrons": electrons}, write_dir=sys.argv[1], comm=simulation.comm)
]
simulation.step(STEPS + 1, show_progress=False)
