from odradek.tools.container.entry import main

raise SystemExit(main())
