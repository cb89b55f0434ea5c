/* Loads a library that uses MPI with local symbols, as interpreters do. Usage: plugin_host LIBRARY */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    int (*run)(void), (*end)(void);
    void *plugin = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (plugin == NULL) {
        fprintf(stderr, "plugin_host: %s\n", count > 1 ? dlerror() : "no library");
        return 1;
    }
    *(void **)&run = dlsym(plugin, "plugin_run");
    *(void **)&end = dlsym(plugin, "plugin_end");
    return run == NULL || end == NULL || run() != 0 || end() != 0;
}
