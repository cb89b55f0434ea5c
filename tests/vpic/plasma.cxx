// A small deck for VPIC: a warm plasma of two species in a periodic box, whose particles are dumped at six steps, as the
// reconnection decks do. Each rank logs the dumps that it begins and closes, so that the test knows what was written when
// the run is killed.

#include <cstdio>

begin_globals {
  int interval;
};

begin_initialization {
  const double length = 12, cells = 48, particles = 120000;
  const double courant = courant_length(length, length, 1, cells, cells, 1);

  num_step = 50;
  status_interval = 10;
  clean_div_e_interval = clean_div_b_interval = sync_shared_interval = 5;
  // With an argument, nothing is dumped.
  global->interval = num_cmdline_arguments > 1 ? num_step + 1 : 10;

  define_units(1, 1);
  define_timestep(0.9 * courant);
  define_periodic_grid(0, 0, 0, length, length, 1, cells, cells, 1, 1, nproc(), 1);
  define_material("vacuum", 1);
  define_field_array(NULL, 0);

  // More particles than VPIC writes at once, 32,768.
  species_t *electron = define_species("electron", -1, 1, 2 * particles / nproc(), -1, 5, 1);
  species_t *ion = define_species("ion", 1, 25, 2 * particles / nproc(), -1, 10, 1);
  set_region_field(everywhere, 0, 0, 0, 0, 0, 0.5);

  const double low = rank() * length / nproc(), high = (rank() + 1) * length / nproc();
  const double weight = length * length / particles;
  seed_entropy(48);
  repeat(particles / nproc()) {
    double x = uniform(rng(0), 0, length), y = uniform(rng(0), low, high), z = uniform(rng(0), 0, 1);
    inject_particle(electron, x, y, z, normal(rng(0), 0, 0.6), normal(rng(0), 0, 0.6), normal(rng(0), 0, 0.6), weight, 0, 0);
    inject_particle(ion, x, y, z, normal(rng(0), 0, 0.1), normal(rng(0), 0, 0.1), normal(rng(0), 0, 0.1), weight, 0, 0);
  }
}

begin_diagnostics {
  if (global->interval <= num_step && step() % global->interval == 0) {
    static FILE *log = NULL;
    char name[64];
    if (!log) {
      dump_mkdir("particle");
      sprintf(name, "log.%d", rank());
      log = fopen(name, "w");
    }
    dump_energies("energies", step() == 0 ? 0 : 1);
    sprintf(name, "particle/T.%ld", (long)step());
    dump_mkdir(name);
    const char *const species[] = {"electron", "ion"}, *const files[] = {"eparticle", "Hparticle"};
    for (int k = 0; k < 2; k++) {
      sprintf(name, "particle/T.%ld/%s", (long)step(), files[k]);
      fprintf(log, "begins %s.%ld.%d\n", name, (long)step(), rank());
      fflush(log);
      dump_particles(species[k], name);
      fprintf(log, "closed %s.%ld.%d\n", name, (long)step(), rank());
      fflush(log);
    }
  }
}

begin_particle_injection {
}

begin_current_injection {
}

begin_field_injection {
}

begin_particle_collisions {
}
