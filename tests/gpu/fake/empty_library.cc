// An empty shared library: a driver that answers nothing, and a dependency that can go missing.
extern "C" __attribute__((visibility("default"))) int monograph_fake_missing();
extern "C" int monograph_fake_missing() { return 1; }
